"""The memory timeline page in a real browser: its chart, what is alive at a moment, its tensors, its keys."""

from pathlib import Path
from typing import Any

import example_ledger
import pytest
from conftest import SCREENSHOTS

from dpprof.pages.reports.timeline import write_timeline
from dpprof.record.figures.results import read_result
from dpprof.vocabulary.formats import fixed

pytestmark = pytest.mark.browser
MIB = example_ledger.MIB
SUM_OF_ROWS = "rows => rows.reduce((sum, row) => sum + Number(row.cells[0].textContent), 0)"
RANGE = "() => [timelineChart.plot.scales.x.min, timelineChart.plot.scales.x.max]"


@pytest.fixture
def timeline_page(tmp_path: Path) -> str:
    record, timeline = example_ledger.record(), example_ledger.timeline()
    folder = example_ledger.folder(tmp_path / "run", record, timeline)
    write_timeline(read_result(folder))
    return folder.timeline_page.as_uri()


@pytest.fixture
def drawn(page: Any, timeline_page: str) -> Any:
    """The page, once its chart is there."""
    page.on("request", lambda r: r.url.startswith(("file:", "data:")) or pytest.fail(r.url))
    page.on("pageerror", lambda error: pytest.fail(str(error)))
    page.goto(timeline_page)
    page.locator("#memory .u-over").wait_for()
    return page


def hover(page: Any, ms: float, mib: float) -> None:
    """Put the pointer at a point of the chart."""
    at = "([ms, mib]) => [timelineChart.plot.valToPos(ms, 'x'), timelineChart.plot.valToPos(mib, 'y')]"
    left, top = page.evaluate(at, [ms, mib])
    page.locator("#memory .u-over").hover(position={"x": left, "y": top})


def test_the_curves_are_the_levels_and_hovering_names_what_they_are(drawn: Any) -> None:
    columns = drawn.evaluate("() => timelineChart.plot.data.slice(1).map(column => [...column])")
    assert columns[-1] == [4, 12, 16, 12, 28, 30, 22, 20, 20, 20], "the total"
    assert columns[-2] == [4] * 10, "the parameters, at the bottom"
    hover(drawn, 96, 20)
    at, *lines = drawn.locator("#memory .tip p").all_inner_texts()
    ms, phase = at.split(" ms, ")
    assert float(ms) == pytest.approx(96, abs=0.5)
    assert phase == "backward"
    assert lines == [
        "30.00 MiB alive",
        "per-sample gradients 16.00 MiB",
        "largest: 16.00 MiB, head.weight, made in backward by bmm",
    ]


def test_a_click_lists_what_is_alive(drawn: Any) -> None:
    rows = drawn.locator("#tensors tbody tr")
    assert rows.evaluate_all(SUM_OF_ROWS) == 30
    hover(drawn, 20, 2)
    clicked = drawn.locator("#memory .tip").inner_text().split(" ms")[0]
    assert float(clicked) == pytest.approx(20, abs=0.5)
    drawn.mouse.down()
    drawn.mouse.up()
    assert drawn.locator("#alive-heading").inner_text() == f"Alive at {clicked} ms"
    assert rows.evaluate_all(SUM_OF_ROWS) == 12
    drawn.locator("#memory").press("End")
    assert rows.first.inner_text().split("\t")[1] == "summed gradients", "as what they are then"
    drawn.locator("#memory .peak").click()
    peak = example_ledger.ledger().peak / MIB
    assert rows.evaluate_all(SUM_OF_ROWS) == peak
    assert f"4 tensors, {peak:.2f} MiB, 94.44 ms" in drawn.locator("#alive-summary").inner_text()
    drawn.locator("#tensors th button", has_text="of").click()
    assert [row.split("\t")[2] for row in rows.all_inner_texts()][:3] == [
        "blocks.0.mlp_in",
        "head.weight",
        "head.weight",
    ]


def test_all_tensors_are_searched_and_sorted(drawn: Any) -> None:
    rows = drawn.locator("#all-tensors tbody tr")
    assert rows.count() == 5
    assert drawn.locator("#all-summary").inner_text() == "5 of 5 tensors"
    drawn.locator("#search").fill("mlp_in gelu")
    assert [row.split("\t")[0] for row in rows.all_inner_texts()] == ["4.00"]
    assert rows.first.inner_text().split("\t")[-2:] == ["25.00", "37.50"], "its birth and its end"
    rows.first.locator("button.moment").first.click()
    assert "16.00 MiB, 25.00 ms" in drawn.locator("#alive-summary").inner_text()
    drawn.locator("#search").fill("")
    drawn.locator("#all-tensors th button", has_text="born").click()
    births = [row.split("\t")[-2] for row in rows.all_inner_texts()]
    assert births == ["94.44", "66.67", "25.00", "12.50", "before"]


def test_dragging_zooms_and_keys_zoom_and_move(drawn: Any) -> None:
    whole = drawn.evaluate(RANGE)
    hover(drawn, 60, 2)
    drawn.mouse.down()
    hover(drawn, 120, 2)
    drawn.mouse.up()
    assert drawn.evaluate(RANGE) == pytest.approx([60, 120], abs=1)
    assert drawn.locator("#alive-heading").inner_text() == "Alive at the peak", "a drag chooses no moment"
    drawn.locator("#memory").press("0")
    assert drawn.evaluate(RANGE) == whole
    drawn.locator("#memory").focus()
    drawn.keyboard.press("+")
    left, right = drawn.evaluate(RANGE)
    assert right - left == pytest.approx((whole[1] - whole[0]) / 2)
    assert left < 94.4 < right
    drawn.keyboard.press("Home")
    assert "4.00 MiB, 0.00 ms" in drawn.locator("#alive-summary").inner_text()
    assert drawn.evaluate(RANGE)[0] == 0, "the chosen moment is in view"
    drawn.keyboard.press("Escape")
    assert drawn.evaluate(RANGE) == whole
    drawn.keyboard.press("p")
    assert drawn.locator("#alive-heading").inner_text() == "Alive at the peak"
    for _ in range(10):
        drawn.keyboard.press("ArrowRight")
    assert "3 tensors, 22.00 MiB, 124.44 ms" in drawn.locator("#alive-summary").inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone_nothing_sticks_out(browser: Any, timeline_page: str, scheme: str) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 800}, color_scheme=scheme)
    phone = context.new_page()
    phone.goto(timeline_page)
    phone.locator("#memory .u-over").wait_for()
    assert phone.evaluate("document.documentElement.scrollWidth") <= 390
    phone.screenshot(path=SCREENSHOTS / f"timeline_390_{scheme}.png", full_page=True)
    context.close()


def test_without_javascript_the_chart_and_the_tables_are_there(browser: Any, timeline_page: str) -> None:
    context = browser.new_context(java_script_enabled=False)
    plain = context.new_page()
    plain.goto(timeline_page)
    assert plain.locator("img.plain").evaluate("image => image.naturalWidth") == 800
    assert plain.locator("#tensors tbody tr").evaluate_all(SUM_OF_ROWS) == 30
    assert not plain.locator("#search").is_visible()
    context.close()


def test_the_scripts_write_figures_as_the_package_does(drawn: Any) -> None:
    values = [0, 0.0012, 0.034, 0.053, 0.097, 0.44, 0.96, 1.006, 12.346, 1234.6, -0.034]
    for digits in (0, 1, 2):
        written = drawn.evaluate("([values, digits]) => values.map(v => fixed(v, digits))", [values, digits])
        assert written == [fixed(value, digits) for value in values]
