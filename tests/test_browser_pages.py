"""What a person sees of pages opened from disk, in a real browser."""

from pathlib import Path
from typing import Any

import example_counters
import example_ledger
import pytest
from conftest import SCREENSHOTS
from shown_comparison import TRAINERS, check_comparison

from dpprof.figures.results import read_result
from dpprof.record.record import Ceilings
from dpprof.reports.roofline.write import write_run_roofline

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("width", [1280, 390])
def test_the_comparison_opens_from_disk(swept: Path, page: Any, width: int) -> None:
    remote: list[str] = []
    page.on("request", lambda r: None if r.url.startswith(("file:", "data:")) else remote.append(r.url))
    page.on("pageerror", lambda error: pytest.fail(str(error)))
    page.set_viewport_size({"width": width, "height": 900})
    page.goto((swept / "runs" / "grid é" / "comparison.html").as_uri())
    check_comparison(swept, page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width, "nothing sticks out"
    row = page.locator('tr[data-trainer="DPSGDTrainer"]')
    page.locator('#filters input[data-trainer="DPSGDTrainer"]').uncheck()
    assert not row.is_visible()
    page.locator('#filters input[data-trainer="DPSGDTrainer"]').check()
    assert row.is_visible()
    drawn = page.locator("#two-runs-legend .entry").all_inner_texts()
    assert "per-sample gradients" in drawn
    page.select_option("#lower-run", index=0)
    assert "per-sample gradients" not in page.locator("#two-runs-legend .entry").all_inner_texts()
    assert remote == []
    page.screenshot(path=SCREENSHOTS / f"comparison_{width}.png", full_page=True)


def test_the_comparison_reads_without_javascript(swept: Path, browser: Any) -> None:
    context = browser.new_context(java_script_enabled=False)
    plain = context.new_page()
    plain.goto((swept / "runs" / "grid é" / "comparison.html").as_uri())
    assert plain.locator("section.place tr[data-trainer] .figures b").count() == 3 * len(TRAINERS)
    assert plain.locator("#verdict p").first.is_visible()
    assert plain.locator("#measured tr").count() > 5
    assert not plain.locator("#two-runs").is_visible()
    context.close()


@pytest.mark.parametrize("width", [1280, 390])
def test_the_roofline_opens_from_disk(tmp_path: Path, page: Any, width: int) -> None:
    remote: list[str] = []
    page.on("request", lambda r: None if r.url.startswith(("file:", "data:")) else remote.append(r.url))
    page.on("pageerror", lambda error: pytest.fail(str(error)))
    page.on("console", lambda message: remote.append(message.text) if message.type == "error" else None)
    ceilings = Ceilings(copy_bytes_per_s=2.0**35, matmul_flop_per_s=1e12, precision="fp32")
    record = example_ledger.record(ceilings=ceilings, counters=example_counters.counters())
    folder = example_ledger.folder(tmp_path / "run", record, example_ledger.timeline())
    write_run_roofline(read_result(folder))
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(folder.roofline_page.as_uri())
    page.locator("#roofline .scatterlayer .point").first.wait_for(state="attached")
    assert page.locator("#roofline .scatterlayer .point").count() == 2, "forward and backward"
    notes = page.locator("#roofline .annotation-text").all_text_contents()
    assert notes == ["copy 32.0 GiB/s", "matmul 1.00 TFLOP/s"]
    boxes = [box.bounding_box() for box in page.locator("#roofline .annotation").all()]
    assert all(box["x"] >= 0 and box["x"] + box["width"] <= width for box in boxes), "no note is clipped"
    page.locator("#roofline .scatterlayer .point").first.hover(force=True)
    page.locator("#roofline .hovertext").first.wait_for(state="attached")
    assert "FLOP/byte" in page.locator("#roofline .hovertext").first.text_content()
    assert page.evaluate("document.documentElement.scrollWidth") <= width, "nothing sticks out"
    kernel = page.locator("#kernels td.kernel").first.bounding_box()
    assert kernel["width"] <= 500, "long names are wrapped"
    assert remote == []
    page.screenshot(path=SCREENSHOTS / f"roofline_{width}.png", full_page=True)
