"""The pages in the folders of a run and of a sweep: there if there is something to draw, else not."""

import dataclasses
from pathlib import Path

import example_counters
import example_ledger
import pytest
from page_reader import Page

from dpprof.figures.results import read_result
from dpprof.record.folder import RunFolder, SweepFolder
from dpprof.record.ledger import LedgerResult
from dpprof.record.record import Ceilings, Record
from dpprof.reports.comparison.comparison import compare
from dpprof.reports.roofline.write import write_run_roofline, write_sweep_roofline
from dpprof.reports.sweep_reports import write_sweep_reports

CEILINGS = Ceilings(copy_bytes_per_s=2.0**35, matmul_flop_per_s=1e12, precision="fp32")


def run(at: Path, record: Record) -> RunFolder:
    return example_ledger.folder(at, record, example_ledger.timeline())


def sweep(at: Path, **changes: object) -> SweepFolder:
    run(at / "one", example_ledger.record())
    run(at / "other", dataclasses.replace(example_ledger.record(), **changes))  # type: ignore[arg-type]
    return SweepFolder(at)


@pytest.mark.parametrize(
    ("ledger", "ceilings", "counted", "drawn"),
    [
        (True, False, False, False),
        (False, True, False, False),
        (True, True, False, True),
        (True, False, True, True),
        (False, False, True, True),
    ],
)
def test_a_run_has_a_page_if_there_is_something_to_hold_against_something(
    tmp_path: Path, ledger: bool, ceilings: bool, counted: bool, drawn: bool
) -> None:
    booked: LedgerResult | None = example_ledger.ledger() if ledger else None
    record = example_ledger.record(
        ledger=booked,
        ceilings=CEILINGS if ceilings else None,
        counters=example_counters.counters() if counted else None,
    )
    folder = run(tmp_path / "run", record)
    write_run_roofline(read_result(folder))
    assert folder.roofline_page.exists() == drawn
    if drawn:
        page = Page(folder.roofline_page.read_text(encoding="utf-8"))
        assert page.heading == "run: roofline"
        assert ("kernels" in page.tables) == counted
        assert ("ceilings" in page.tables) == ceilings


def test_a_runs_page_holds_its_figures(tmp_path: Path) -> None:
    folder = run(tmp_path / "run", example_ledger.record(ceilings=CEILINGS))
    write_run_roofline(read_result(folder))
    table = Page(folder.roofline_page.read_text(encoding="utf-8")).tables["phases"]
    assert [row[0] for row in table] == [
        *("phase", "DPSGDTrainer, tiny, batch 2, sequence 16", "forward", "backward", "step"),
    ]
    # Backward: 26 MiB and 8 GFLOP in 100 ms.
    assert table[3] == [
        *("backward", "100.0", "26.0", "8.00", "293.4", "80.0", "8.00", "0.25", "0.79"),
        *("matmul", "ledger, wall"),
    ]


def test_a_sweeps_page_stands_in_its_folder_and_among_what_was_written(tmp_path: Path) -> None:
    folder = sweep(tmp_path / "s", ceilings=CEILINGS)
    _, files = write_sweep_reports(folder, [read_result(found) for found in folder.runs()])
    assert folder.roofline_page in files
    page = Page(folder.roofline_page.read_text(encoding="utf-8"))
    assert page.heading == "s: roofline"
    assert page.tables["phases"][1] == ["DPSGDTrainer, tiny, batch 2, sequence 16 (medians of 2 runs)"]
    assert "kernels" not in page.tables


def test_a_page_of_an_earlier_try_does_not_stay(tmp_path: Path) -> None:
    folder = sweep(tmp_path / "s")
    folder.roofline_page.write_text("stale")
    results = [read_result(found) for found in folder.runs()]
    assert write_sweep_roofline(folder, compare("s", {"s": results})) == []
    assert not folder.roofline_page.exists()


def test_a_run_that_left_nothing_has_no_page(tmp_path: Path) -> None:
    folder = example_ledger.folder(tmp_path / "run", None, None)
    write_run_roofline(read_result(folder))
    assert not folder.roofline_page.exists()
