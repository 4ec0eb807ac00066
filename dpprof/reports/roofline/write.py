"""The roofline pages of a run folder and of a sweep, where there is enough to draw one."""

from pathlib import Path

from dpprof.figures.results import Result
from dpprof.record.files import write_text
from dpprof.record.folder import RunFolder, SweepFolder
from dpprof.record.record import Record
from dpprof.reports import counter_tables
from dpprof.reports.comparison.comparison import Comparison, compare
from dpprof.reports.counter_tables import CounterTables
from dpprof.reports.roofline import data, page
from dpprof.reports.roofline.roofs import COPY, Given


def read_counters(folder: RunFolder) -> CounterTables | None:
    """The tables of a run folder's hardware counters, if it has any."""
    return _tables(folder.read_record())


def _tables(record: Record | None) -> CounterTables | None:
    if record is None or record.counters is None:
        return None
    return counter_tables.compute(record.counters, record.ledger)


def write_run_roofline(result: Result) -> list[Path]:
    """Render a run's page if its record has hardware counters, or a ledger and its machine's ceilings.
    Returns the file.
    """
    record = result.record
    if record is None or (record.ceilings is None and record.counters is None):
        return []
    comparison = compare(result.name, {result.name: [result]})
    if not _can_be_drawn(comparison):
        return []
    found = page.compute(data.compute(comparison, Given()), _tables(record))
    write_text(result.folder.roofline_page, page.render(found))
    return [result.folder.roofline_page]


def write_sweep_roofline(folder: SweepFolder, comparison: Comparison) -> list[Path]:
    """Render a sweep's page if that of any of its runs can be drawn; else remove what an earlier try left.
    Returns the file.
    """
    if not _can_be_drawn(comparison):
        folder.roofline_page.unlink(missing_ok=True)
        return []
    found = data.compute(comparison, Given())
    write_text(folder.roofline_page, page.render(page.compute(found, None)))
    return [folder.roofline_page]


def _can_be_drawn(comparison: Comparison) -> bool:
    """Without ceilings the ledger's points stand against nothing, and the default run keeps none."""
    return any(
        "counters/kernel_ms" in run.figures or (COPY in run.figures and "io/total_mib" in run.figures)
        for cell in comparison.cells
        for run in cell.representative
    )
