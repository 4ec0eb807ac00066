"""`dpprof roofline`, on run folders written for the tests."""

import re
from functools import partial
from pathlib import Path
from typing import Any

import example_counters
import example_ledger
import pytest
from conftest import printed, refusal
from page_reader import Page

from dpprof.cli.roofline import roofline
from dpprof.record.record import Ceilings

shown = partial(printed, roofline)
CEILINGS = Ceilings(copy_bytes_per_s=2.0**35, matmul_flop_per_s=1e12, precision="fp32")


@pytest.fixture(autouse=True)
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def made(name: str, **changes: Any) -> str:
    """The name of a run folder."""
    example_ledger.folder(Path(name), example_ledger.record(**changes), example_ledger.timeline())
    return name


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_phases_are_printed_and_drawn_without_ceilings() -> None:
    text = shown(made("sweep/run"))
    assert "DPSGDTrainer, tiny, batch 2, sequence 16\n" in text
    assert ["backward", "100.0", "26.0", "8.00", "293.4", "80.0", "0.25", "ledger,", "wall"] in rows(text)
    assert "dpprof roofline --copy-gib-per-s X --matmul-tflop-per-s Y" in " ".join(text.split())
    assert "the page with all of it: roofline.html" in text
    assert Page(Path("roofline.html").read_text()).tables["phases"][-1][0] == "step"


def test_measured_ceilings_are_used_and_told() -> None:
    text = shown(made("run", ceilings=CEILINGS))
    assert ["A", "&", "B", "fp32", "32.0", "measured", "1,000", "measured"] in [row[:8] for row in rows(text)]
    shares = ["80.0", "8.00", "0.25", "0.79", "matmul", "ledger,", "wall"]
    assert ["backward", "100.0", "26.0", "8.00", "293.4", *shares] in rows(text)


def test_given_ceilings_replace_measured_ones() -> None:
    text = shown(made("run", ceilings=CEILINGS), "--copy-gib-per-s", "0.1", "--output", "else.html")
    assert ["fp32", "0.10", "given", "1,000", "measured"] in [row[3:8] for row in rows(text)]
    assert "warning: Above the copy ceiling: forward (273 %)" in text
    assert "the page with all of it: else.html" in text
    assert Path("else.html").exists()


def test_a_single_run_with_counters_has_their_tables_on_its_page() -> None:
    one = made("sweep/one", counters=example_counters.counters())
    text = shown(one)
    assert ["forward", "2.00", "8.00", "3.00", "357.6", "1,500", "3.91"] in [row[:7] for row in rows(text)]
    assert "kernels" in Page(Path("roofline.html").read_text()).tables
    made("sweep/other")
    shown("sweep")
    assert "kernels" not in Page(Path("roofline.html").read_text()).tables


def test_a_ceiling_is_a_number_above_0() -> None:
    given = {"copy_gib_per_s": ("0", "fast"), "matmul_tflop_per_s": ("-1", "inf", "")}
    for name, value in ((name, value) for name, values in given.items() for value in values):
        said = refusal(shown, made("run"), f"--{name.replace('_', '-')}", value)
        assert re.match(rf"{name}: got .*, allowed: a number above 0", said)


def test_what_has_neither_a_ledger_nor_counters_is_refused() -> None:
    said = refusal(shown, made("run", ledger=None))
    assert said.startswith("SOURCE: got run, allowed: runs that were measured with a ledger")
    assert not Path("roofline.html").exists()
