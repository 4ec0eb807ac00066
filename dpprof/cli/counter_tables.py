"""Hardware counters in the terminal."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from rich.markup import escape

from dpprof.cli.fitted_tables import FittedTable, one, table, three, two
from dpprof.reports.colors import words
from dpprof.reports.counter_tables import CountedRow, CounterTables

# Column, how it is shown, and where its figure comes from.
_FIGURES: tuple[tuple[str, Callable[..., str], str], ...] = (
    ("launches", "{:,}".format, "launches"),
    ("ms", three, "kernel_ms"),
    ("DRAM read", one, "dram_read_mib"),
    ("written", one, "dram_written_mib"),
    ("GiB/s", one, "dram_gib_per_s"),
    ("% of peak", one, "dram_pct_of_peak"),
    ("L2 read", one, "l2_read_mib"),
    ("written", one, "l2_written_mib"),
    ("L1 load", one, "l1_load_mib"),
    ("store", one, "l1_store_mib"),
)
_LEDGER: tuple[tuple[str, Callable[..., str], str], ...] = (
    ("ledger", one, "ledger_mib"),
    ("DRAM/ledger", two, "dram_to_ledger"),
)


def counter_tables(found: CounterTables, num_kernels: int) -> Iterable[FittedTable | str]:
    """Tables by phase, by class and of the `num_kernels` kernels with the most DRAM traffic, then notes."""
    against = _LEDGER if found.step.ledger_mib is not None else ()
    if found.has_phases:
        rows = [*found.by_phase, found.step]
        yield _counted("Hardware counters by phase, in MiB", "phase", rows, str, against)
    else:
        yield "no kernel lies in a phase: an NVTX start/end range named phase:forward, phase:backward, ..."
        yield _counted("Hardware counters, in MiB", "all kernels", [found.step], lambda _: "")
    yield _counted("Hardware counters by kernel class, in MiB", "class", found.by_class, words)
    kernels = found.kernels[:num_kernels]
    if kernels:
        yield table(
            f"Kernels with the most DRAM traffic, in MiB ({len(kernels)} of {len(found.kernels)})",
            [("kernel", str), ("phase", str), ("class", str), *((n, shown) for n, shown, _ in _FIGURES[:6])],
            [(row.name, row.phase, words(row.kernel_class), *_figures(row, _FIGURES[:6])) for row in kernels],
        )
    yield from _further([*found.by_phase, found.step] if found.has_phases else [found.step])
    for metric, reason in found.missing.items():
        yield f"{escape(metric)} was not counted: {escape(reason)}"
    if found.settings:
        yield "counted with " + escape(", ".join(f"{words(k)} {v}" for k, v in found.settings.items()))


def _counted(
    title: str,
    first: str,
    rows: list[CountedRow],
    named: Callable[[str], str],
    more: tuple[tuple[str, Callable[..., str], str], ...] = (),
) -> FittedTable:
    columns = (*_FIGURES, *more)
    return table(
        title,
        [(first, str), *((name, shown) for name, shown, _ in columns)],
        [(named(row.name), *_figures(row, columns)) for row in rows],
    )


def _figures(row: CountedRow, columns: tuple[tuple[str, Callable[..., str], str], ...]) -> tuple[Any, ...]:
    return tuple(getattr(row, field) for _, _, field in columns)


def _further(rows: list[CountedRow]) -> Iterator[FittedTable]:
    """The metrics that have no column, by phase."""
    metrics = dict.fromkeys(metric for row in rows for metric in row.extra)
    if metrics:
        yield table(
            "Further metrics, in base units",
            [("metric", str), *((row.name, two) for row in rows)],
            [(metric, *(row.extra.get(metric) for row in rows)) for metric in metrics],
        )
