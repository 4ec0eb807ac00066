"""What a comparison page must show of the sweep that tests read."""

import json
import statistics
from pathlib import Path
from typing import Any

import pytest

from dpprof.vocabulary.formats import number

TRAINERS = ("StandardTrainer", "DPSGDTrainer", "DPGhostClippingTrainer", "DPFastGradientClippingTrainer")


RUNS = [f"{trainer}_tiny_bs2_seq16" for trainer in TRAINERS]


def record_of(swept: Path, name: str) -> Any:
    return json.loads((swept / "runs" / "grid é" / name / "record.json").read_text())


def _check_row(row: Any, record: Any, highest: int) -> None:
    """The figures of one trainer, and its bar, on the scale of the highest peak."""
    shown = " ".join(row.locator("> td").all_inner_texts())
    ledger = record["ledger"]
    moved = sum(line["read"] + line["written"] for line in ledger["traffic"])
    step_s = statistics.median(record["step_s"])
    for figure in (
        f"{number(record['memory']['peak_allocated'] / 2**20)} MiB",
        number(1e3 * step_s),
        f"{number(moved / 2**20)} MiB",
        number(record["samples_per_step"] / step_s),
    ):
        assert figure in shown, f"{figure} is missing in {shown}"
    parts = (
        row.locator(".bar")
        .first.locator("span")
        .evaluate_all("spans => spans.map(span => span.getBoundingClientRect().width)")
    )
    whole = row.locator(".bar").first.evaluate("bar => bar.getBoundingClientRect().width")
    assert sum(parts) == pytest.approx(whole * record["memory"]["peak_allocated"] / highest, abs=2)


def check_comparison(swept: Path, viewer: Any) -> None:
    """The page in a frame: every figure that it shows of a cell is the record's."""
    viewer.locator("section.place").first.wait_for()
    records = [record_of(swept, name) for name in RUNS]
    highest = max(record["memory"]["peak_allocated"] for record in records)
    for trainer, record in zip(TRAINERS, records, strict=True):
        _check_row(viewer.locator(f'.cells tr[data-trainer="{trainer}"]'), record, highest)
    marks = viewer.locator("#scatter .mark")
    assert marks.count() == len(TRAINERS), "one point for each trainer"
    boxes = [mark.bounding_box() for mark in marks.all()]
    assert all(min(box["width"], box["height"]) > 4 for box in boxes)
    heights = [box["y"] + box["height"] / 2 for box in boxes]
    peaks = [record["memory"]["peak_allocated"] for record in records]
    slopes = [(heights[0] - y) / (peak - peaks[0]) for y, peak in zip(heights[1:], peaks[1:], strict=True)]
    assert min(slopes) == pytest.approx(max(slopes), rel=0.1), "drawn on one scale"
    viewer.locator("#two-runs-chart .u-over").wait_for()
    labels = [viewer.locator(f"#{which}-run option:checked").inner_text() for which in ("upper", "lower")]
    assert [label.split(":")[0] for label in labels] == ["standard", "flat"]
    shown = viewer.locator("#two-runs-chart").evaluate(
        "() => twoRunsChart.plot.data.slice(1).map(y => [Math.min(...y), Math.max(...y)])"
    )
    peaks = [max(high for _, high in shown), -min(low for low, _ in shown)]
    for peak, name in zip(peaks, RUNS, strict=False):
        record = record_of(swept, name)
        assert peak == pytest.approx(record["ledger"]["peak"] / 2**20, rel=1e-3)
