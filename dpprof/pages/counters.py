"""Hardware counters of one experiment as tables."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from dpprof.findings.counter_tables import CountedRow, CounterTables
from dpprof.pages.document import Column, Columns, Part, Sentence, Table, table
from dpprof.record.figures.counters import (
    DRAM_READ,
    DRAM_WRITTEN,
    L1_LOAD,
    L1_STORE,
    L2_READ,
    L2_WRITTEN,
)
from dpprof.vocabulary.colors import words
from dpprof.vocabulary.formats import number, whole

_FIGURES: dict[Column, Callable[[CountedRow], float | None]] = {
    Column("launches", whole): lambda row: row.figures.kernel_launches,
    Column("time", number, "ms"): lambda row: row.figures.kernel_ms,
    Column("DRAM read", number, "MiB"): lambda row: row.figures.moved_mib(DRAM_READ),
    Column("DRAM written", number, "MiB"): lambda row: row.figures.moved_mib(DRAM_WRITTEN),
    Column("DRAM", number, "GiB/s"): lambda row: row.figures.dram_gib_per_s,
    Column("% of DRAM's peak", number): lambda row: row.figures.dram_pct_of_peak,
    Column("L2 read", number, "MiB"): lambda row: row.figures.moved_mib(L2_READ),
    Column("L2 written", number, "MiB"): lambda row: row.figures.moved_mib(L2_WRITTEN),
    Column("L1 load", number, "MiB"): lambda row: row.figures.moved_mib(L1_LOAD),
    Column("L1 store", number, "MiB"): lambda row: row.figures.moved_mib(L1_STORE),
}
_LEDGER: dict[Column, Callable[[CountedRow], float | None]] = {
    Column("ledger", number, "MiB"): lambda row: row.ledger_mib,
    Column("DRAM / ledger", number): lambda row: row.figures.dram_to_ledger,
}


def parts(found: CounterTables, num_kernels: int) -> Iterator[Part]:
    """Yield tables by phase, by class and of the `num_kernels` kernels with most DRAM traffic, then notes."""
    rows = [*found.by_phase, found.step] if found.has_phases else [found.step]
    if not found.has_phases:
        said = "no kernel lies in a phase: an NVTX start/end range named phase:forward, phase:backward, ..."
        yield Sentence(said, "note")
    figures = _FIGURES | (_LEDGER if found.step.ledger_mib is not None else {})
    named = [((row.name,), row) for row in rows]
    bold = [len(rows) - 1] if found.has_phases else []
    yield _counted("Hardware counters by phase", "counters-by-phase", ["phase"], named, figures, bold)
    classes = [((words(row.name),), row) for row in found.by_class]
    yield _counted("Hardware counters by kernel class", "counters-by-class", ["class"], classes)
    if kernels := found.kernels[:num_kernels]:
        title = f"Kernels with the most DRAM traffic ({len(kernels)} of {len(found.kernels)})"
        listed = [((row.name, row.phase, words(row.kernel_class)), row) for row in kernels]
        yield _counted(title, "kernels", ["kernel", "phase", "class"], listed)
    if metrics := dict.fromkeys(metric for row in rows for metric in row.extra):
        columns: Columns = [("metric, in base units", str), *((row.name, number) for row in rows)]
        further = [(metric, *(row.extra.get(metric) for row in rows)) for metric in metrics]
        yield table("Further metrics", columns, further, name="further")
    for metric, reason in found.missing.items():
        yield Sentence(f"{metric} was not counted: {reason}", "note")
    if found.settings:
        settings = ", ".join(f"{words(name)} {value}" for name, value in found.settings.items())
        yield Sentence(f"counted with {settings}", "note")


def _counted(
    title: str,
    name: str,
    first: list[str],
    rows: Iterable[tuple[tuple[str, ...], CountedRow]],
    figures: Mapping[Column, Callable[[CountedRow], float | None]] = _FIGURES,
    bold: Collection[int] = (),
) -> Table:
    columns = [*map(Column, first), *figures]
    shown = [(*named, *(figure(row) for figure in figures.values())) for named, row in rows]
    return table(title, columns, shown, name=name, bold=bold)
