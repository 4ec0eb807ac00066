"""What a comparison page must show of the sweep that tests read."""

import json
import statistics
from pathlib import Path
from typing import Any

import pytest

from dpprof.vocabulary.formats import number

TRAINERS = ("StandardTrainer", "DPSGDTrainer", "DPGhostClippingTrainer", "DPFastGradientClippingTrainer")


# The chart of memory against time.
SCATTER = 'svg[aria-label$="peak memory against step time"]'
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
        number(record["memory"]["peak_allocated"] / 2**20),
        number(1e3 * step_s),
        number(moved / 2**20),
        number(record["samples_per_step"] / step_s),
    ):
        assert figure in shown, f"{figure} is missing in {shown}"
    bar = row.locator(".meter", has=row.page.locator('span[title^="parameters:"]'))
    widths = "spans => spans.map(span => span.getBoundingClientRect().width)"
    parts, whole = bar.locator("span").evaluate_all(widths), bar.evaluate("bar => bar.clientWidth")
    assert sum(parts) == pytest.approx(whole * record["memory"]["peak_allocated"] / highest, abs=2)


def check_comparison(swept: Path, viewer: Any) -> None:
    """The page in a frame: every figure that it shows of a cell is the record's."""
    viewer.locator("#runs").wait_for()
    records = [record_of(swept, name) for name in RUNS]
    highest = max(record["memory"]["peak_allocated"] for record in records)
    for trainer, record in zip(TRAINERS, records, strict=True):
        _check_row(viewer.locator(f'#runs tr[data-trainer="{trainer}"]'), record, highest)
    marks = viewer.locator(f"{SCATTER} .mark")
    assert marks.count() == len(TRAINERS), "one point for each trainer"
    boxes = [mark.bounding_box() for mark in marks.all()]
    assert all(min(box["width"], box["height"]) > 4 for box in boxes)
    heights = [box["y"] + box["height"] / 2 for box in boxes]
    peaks = [record["memory"]["peak_allocated"] for record in records]
    slopes = [(heights[0] - y) / (peak - peaks[0]) for y, peak in zip(heights[1:], peaks[1:], strict=True)]
    assert min(slopes) == pytest.approx(max(slopes), rel=0.1), "drawn on one scale"
