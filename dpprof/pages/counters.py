"""Hardware counters of one experiment as tables."""

from collections.abc import Iterator

from dpprof.config.counter_metrics import BASIC
from dpprof.findings.counter_tables import CounterTables
from dpprof.pages.document import ColumnOf, Columns, Part, Sentence, table, table_of
from dpprof.record.figures import counters as where
from dpprof.vocabulary.colors import words
from dpprof.vocabulary.formats import number, whole

_NAME: ColumnOf = ("phase", str, lambda row: row.name)
_CLASS: ColumnOf = ("class", str, lambda row: words(row.kernel_class))
_KERNEL: tuple[ColumnOf, ...] = (("kernel", str, lambda row: row.name), ("phase", str, lambda row: row.phase))
_FIGURES: tuple[ColumnOf, ...] = (
    ("launches", whole, lambda row: row.figures.kernel_launches or ""),  # sampling tells none
    ("time [ms]", number, lambda row: row.figures.kernel_ms),
    ("DRAM read [MiB]", number, lambda row: row.figures.moved_mib(where.DRAM_READ)),
    ("DRAM written [MiB]", number, lambda row: row.figures.moved_mib(where.DRAM_WRITTEN)),
    ("DRAM [GiB/s]", number, lambda row: row.figures.dram_gib_per_s),
    ("% of DRAM's peak", number, lambda row: row.figures.dram_pct_of_peak),
    ("L2 read [MiB]", number, lambda row: row.figures.moved_mib(where.L2_READ)),
    ("L2 written [MiB]", number, lambda row: row.figures.moved_mib(where.L2_WRITTEN)),
    ("L1 load [MiB]", number, lambda row: row.figures.moved_mib(where.L1_LOAD)),
    ("L1 store [MiB]", number, lambda row: row.figures.moved_mib(where.L1_STORE)),
)
_LEDGER: tuple[ColumnOf, ...] = (
    ("ledger [MiB]", number, lambda row: row.ledger_mib),
    ("DRAM / ledger", number, lambda row: row.figures.dram_to_ledger),
)


def parts(found: CounterTables, num_kernels: int) -> Iterator[Part]:
    """Yield tables by phase, by class and of the `num_kernels` kernels with most DRAM traffic, then notes."""
    rows = [*found.by_phase, found.step] if found.has_phases else [found.step]
    if not found.has_phases:
        said = "no kernel lies in a phase: an NVTX start/end range named phase:forward, phase:backward, ..."
        yield Sentence(said, "note")
    columns = [_NAME, *_FIGURES, *(_LEDGER if found.step.ledger_mib is not None else ())]
    bold = [len(rows) - 1] if found.has_phases else []
    yield table_of(rows, columns, "Hardware counters by phase", name="counters-by-phase", bold=bold)
    title = "Hardware counters by kernel class"
    yield table_of(found.by_class, [_CLASS, *_FIGURES], title, name="counters-by-class")
    if kernels := found.kernels[:num_kernels]:
        title = f"Kernels with the most DRAM traffic ({len(kernels)} of {len(found.kernels)})"
        yield table_of(kernels, [*_KERNEL, _CLASS, *_FIGURES], title, name="kernels")
    metrics = dict.fromkeys(metric for row in rows for metric in row.figures.values if metric not in BASIC)
    if metrics:
        shown: Columns = [("metric, in base units", str), *((row.name, number) for row in rows)]
        further = [(metric, *(row.figures.values.get(metric) for row in rows)) for metric in metrics]
        yield table("Further metrics", shown, further, name="further")
    for metric, reason in found.counters.missing.items():
        yield Sentence(f"{metric} was not counted: {reason}", "note")
    if found.counters.settings:
        settings = ", ".join(f"{words(name)} {value}" for name, value in found.counters.settings.items())
        yield Sentence(f"counted with {settings}", "note")
