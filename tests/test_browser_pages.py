"""What a person sees of pages opened from disk, in a real browser."""

import re
from pathlib import Path
from typing import Any

import example_counters
import example_ledger
import pytest
from conftest import SCREENSHOTS
from shown_comparison import RUNS, SCATTER, TRAINERS, check_comparison, record_of

from dpprof.pages.run_reports import write_run_reports
from dpprof.record.figures.results import read_result
from dpprof.record.record import Ceilings
from dpprof.vocabulary.formats import number
from dpprof.vocabulary.trainers import short_name

pytestmark = pytest.mark.browser

# Of every element with a text of its own: the text, and its contrast with what lies below it.
CONTRASTS = """() => {
  const parse = color => color.match(/[\\d.]+/g).map(Number);
  const luminance = rgb => {
    const [r, g, b] = rgb.map(c => c / 255).map(c => c <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4);
    return .2126 * r + .7152 * g + .0722 * b;
  };
  const ground = element => {
    const [r, g, b, alpha = 1] = parse(getComputedStyle(element).backgroundColor);
    if (alpha === 1 || !element.parentElement) return [r, g, b];
    return ground(element.parentElement).map((below, i) => alpha * [r, g, b][i] + (1 - alpha) * below);
  };
  const hasText = element => [...element.childNodes].some(node => node.nodeType === 3 && node.data.trim());
  const shown = [...document.body.querySelectorAll("*")].filter(element => element.getClientRects().length
    && hasText(element) && !element.matches("script, style, title, option"));
  return shown.map(element => {
    const style = getComputedStyle(element);
    const ink = luminance(parse(element instanceof SVGElement ? style.fill : style.color).slice(0, 3));
    const below = luminance(ground(element));
    return [element.textContent.trim(), (Math.max(ink, below) + .05) / (Math.min(ink, below) + .05)];
  });
}"""


@pytest.mark.parametrize("width", [1280, 390])
def test_the_comparison_opens_from_disk(swept: Path, page: Any, width: int) -> None:
    remote: list[str] = []
    page.on("request", lambda r: None if r.url.startswith(("file:", "data:")) else remote.append(r.url))
    page.on("pageerror", lambda error: pytest.fail(str(error)))
    page.set_viewport_size({"width": width, "height": 900})
    page.goto((swept / "runs" / "grid é" / "comparison.html").as_uri())
    check_comparison(swept, page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width, "nothing sticks out"
    answers = page.locator("#answers")
    assert answers.locator("tr[data-trainer]").count() == len(TRAINERS)
    assert answers.bounding_box()["y"] < 900, "seen without scrolling"
    assert remote == []
    page.screenshot(path=SCREENSHOTS / f"comparison_{width}.png", full_page=True)


def test_the_comparison_reads_without_javascript(swept: Path, browser: Any) -> None:
    context = browser.new_context(java_script_enabled=False)
    plain = context.new_page()
    plain.goto((swept / "runs" / "grid é" / "comparison.html").as_uri())
    assert plain.locator("#runs tr[data-trainer] .meter.parts").count() == 3 * len(TRAINERS)
    assert plain.locator("p.answer").first.is_visible()
    assert plain.locator("#measured tr").count() > 5
    assert plain.locator(f"{SCATTER} .mark").count() == len(TRAINERS)
    assert plain.locator("button:visible").count() == 0
    context.close()


def test_tables_sort_by_click_and_by_keyboard(swept: Path, page: Any) -> None:
    page.goto((swept / "runs" / "grid é" / "comparison.html").as_uri())
    table = page.locator("#runs")
    names, peaks = {}, {}
    for name, trainer in zip(RUNS, TRAINERS, strict=True):
        peaks[trainer] = record_of(swept, name)["memory"]["peak_allocated"]
        names[trainer] = short_name(trainer)

    def order() -> list[str]:
        return [row.get_attribute("data-trainer") for row in table.locator("tbody tr[data-trainer]").all()]

    assert order() == list(TRAINERS)
    header = table.get_by_role("button", name="peak memory [MiB]")
    column = table.get_by_role("columnheader", name="peak memory [MiB]")
    header.click()
    assert order() == sorted(TRAINERS, key=lambda trainer: peaks[trainer])
    assert column.get_attribute("aria-sort") == "ascending"
    header.focus()
    page.keyboard.press("Enter")
    assert order() == sorted(TRAINERS, key=lambda trainer: -peaks[trainer])
    assert column.get_attribute("aria-sort") == "descending"
    table.get_by_role("button", name="trainer").focus()
    page.keyboard.press("Space")
    assert order() == sorted(TRAINERS, key=lambda trainer: names[trainer]), "texts as texts"
    assert table.locator("th[aria-sort]").count() == 1


@pytest.mark.parametrize("framed", [False, True])
def test_a_table_can_be_copied_as_markdown(swept: Path, tmp_path: Path, browser: Any, framed: bool) -> None:
    """From the page, and from a frame as in MLflow's artifact viewer, which is refused the clipboard."""
    address = (swept / "runs" / "grid é" / "comparison.html").as_uri()
    context = browser.new_context()
    shown = page = context.new_page()
    if framed:
        outer = tmp_path / "outer.html"
        outer.write_text(
            f'<iframe sandbox="allow-scripts" width="550" height="800" src="{address}"></iframe>'
        )
        page.goto(outer.as_uri())
        shown = page.frame_locator("iframe")
    else:
        page.goto(address)
    shown.locator("#runs thead button", has_text="peak memory [MiB]").click()
    button = shown.locator("div.wide:has(#runs) + button.copy")
    button.click()
    shown.locator("button.copy", has_text="Copied").first.wait_for()
    context.grant_permissions(["clipboard-read"])
    lines = page.evaluate("navigator.clipboard.readText()").splitlines()
    context.close()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert cells[0][:2] == ["trainer", "step time [ms]"]
    assert cells[1][:2] == [":--", "--:"]
    by_name = {row[0]: row for row in cells[2:] if row[0] in map(short_name, TRAINERS)}
    assert next(iter(by_name)) == "standard", "in the order that is shown"
    peak = record_of(swept, RUNS[1])["memory"]["peak_allocated"] / 2**20
    assert number(peak) in by_name["flat"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["comparison", "roofline"])
def test_every_text_stands_out_in_light_and_dark(
    swept: Path, tmp_path: Path, page: Any, name: str, scheme: str
) -> None:
    page.emulate_media(color_scheme=scheme)
    address = (swept / "runs" / "grid é" / "comparison.html").as_uri()
    page.goto(address if name == "comparison" else a_roofline(tmp_path).as_uri())
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    lightness = sum(map(int, re.findall(r"\d+", ground)[:3])) / 3
    assert lightness > 250 if scheme == "light" else lightness < 50
    found = page.evaluate(CONTRASTS)
    assert len(found) > 30
    assert [text for text, contrast in found if contrast < 4.5] == [], "WCAG 2.2, 1.4.3"


def a_roofline(folder: Path) -> Path:
    """The roofline page of a run with ceilings and hardware counters."""
    ceilings = Ceilings(copy_bytes_per_s=2.0**35, matmul_flop_per_s=1e12, precision="fp32")
    record = example_ledger.record(ceilings=ceilings, counters=example_counters.counters())
    run = example_ledger.folder(folder / "run", record, example_ledger.timeline())
    write_run_reports(read_result(run))
    return run.roofline_page


@pytest.mark.parametrize("width", [1280, 390])
def test_the_roofline_opens_from_disk(tmp_path: Path, page: Any, width: int) -> None:
    remote: list[str] = []
    page.on("request", lambda r: None if r.url.startswith(("file:", "data:")) else remote.append(r.url))
    page.on("pageerror", lambda error: pytest.fail(str(error)))
    page.on("console", lambda message: remote.append(message.text) if message.type == "error" else None)
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(a_roofline(tmp_path).as_uri())
    marks = page.locator("#roofline .mark")
    assert marks.count() == 2, "forward and backward"
    assert all(min(mark.bounding_box()[side] for side in ("width", "height")) > 4 for mark in marks.all())
    notes = page.locator("#roofline .note")
    assert notes.all_text_contents() == ["copy 32.0 GiB/s", "matmul 1.00 TFLOP/s"]
    boxes = [box.bounding_box() for box in notes.all()]
    assert all(box["x"] >= 0 and box["x"] + box["width"] <= width for box in boxes), "no note is clipped"
    assert "FLOP/byte" in marks.first.locator("title").text_content()
    page.locator("#phases thead").get_by_role("button", name="MiB", exact=True).click()
    assert page.locator("#phases tbody tr").first.inner_text().startswith("DPSGDTrainer"), "it stays on top"
    assert page.evaluate("document.documentElement.scrollWidth") <= width, "nothing sticks out"
    kernel = page.locator("#kernels tbody td").first.bounding_box()
    assert kernel["width"] <= 500, "long names are wrapped"
    assert remote == []
    page.screenshot(path=SCREENSHOTS / f"roofline_{width}.png", full_page=True)
