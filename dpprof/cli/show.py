"""`dpprof show`: what the ledger and the hardware counters of one experiment say, in the terminal."""

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dpprof.cli.fitted_tables import FittedTable
    from dpprof.figures.results import Result
    from dpprof.record.folder import RunFolder
    from dpprof.record.record import Record
    from dpprof.reports.tables import LedgerTables


_BAR_WIDTH = 30


@click.command()
@click.argument("run_folder", type=click.Path())
@click.option("--tensors", default=10, show_default=True, help="How many of the largest tensors to list.")
@click.option(
    "--kernels", default=10, show_default=True, help="How many of the kernels with the most traffic to list."
)
def show(run_folder: str, tensors: int, kernels: int) -> None:
    """Show one experiment's memory and traffic.

    Prints what fills the memory at the peak of a training step, the largest tensors there, and the bytes
    that each phase moves; of a run with hardware counters (--counters auto) also what they counted; of one
    with several ranks how each of them did; of one with --plan what the plan said; which parameters train;
    and, if --dataset-size was given, the privacy of the whole training. Needs neither MLflow nor a GPU.

    \b
    dpprof show runs/<sweep>/<run>
    """
    from rich.markup import escape

    from dpprof.cli.console import open_console
    from dpprof.cli.counter_tables import counter_tables
    from dpprof.cli.fitted_tables import FittedTable
    from dpprof.errors import ConfigError
    from dpprof.figures.results import describe, read_result
    from dpprof.reports.counter_tables import compute as counted
    from dpprof.reports.tables import compute

    for name, value in (("tensors", tensors), ("kernels", kernels)):
        if value < 0:
            raise ConfigError(f"{name}: got {value}, allowed: 0 or more")
    folder = _opened(run_folder)
    result, timeline = read_result(folder), folder.read_timeline()
    record, figures = result.record, result.figures
    console = open_console()
    parts: list[FittedTable | str] = []
    if record is not None and record.ledger and figures and figures.ledger and timeline is not None:
        found = compute(figures, figures.ledger, record.ledger, timeline)
        parts += _tables(found, tensors, ascii_only=console.options.ascii_only)
    if record is not None and record.counters is not None:
        parts += counter_tables(counted(record.counters, record.ledger), kernels)
    if record is None or not parts:
        raise ConfigError(f"run_folder: {run_folder} has no ledger to show; {_why_none(result)}")
    parts += _of_the_training(result, record)
    if result.config.is_estimate:
        console.print(f"[b]nothing was run[/], these are fake tensors: {escape(describe(result))}")
    for part in parts:
        if isinstance(part, FittedTable):
            console.print()
        console.print(part)


def _of_the_training(result: "Result", record: "Record") -> "Iterable[FittedTable | str]":
    """What there is beside its ledger and counters."""
    from rich.markup import escape

    from dpprof.cli.parameter_table import parameter_parts
    from dpprof.cli.plan_table import plan_table
    from dpprof.cli.rank_table import rank_table
    from dpprof.figures.privacy import privacy_words

    figures = result.figures
    if figures is not None and figures.ranks is not None and figures.ranks.slowest is not None:
        yield rank_table(figures.ranks)
    if result.predicted is not None:
        yield plan_table(result.predicted, record)
    yield from parameter_parts(record)
    if record.privacy is not None:
        yield f"[b]privacy of the whole training[/]: {escape(privacy_words(record.privacy))}"


def _opened(run_folder: str) -> "RunFolder":
    from pathlib import Path

    from dpprof.errors import ConfigError
    from dpprof.record.folder import RunFolder

    if not Path(run_folder).is_dir():
        raise ConfigError(f"run_folder: got {run_folder!r}, allowed: a run folder that exists")
    folder = RunFolder(run_folder)
    if not folder.config.exists():
        raise ConfigError(f"run_folder: got {run_folder!r}, allowed: a folder with a config.json in it")
    return folder


def _why_none(result: "Result") -> str:
    """Why there is no ledger."""
    failed = result.record.failed_passes if result.record else {}
    why = result.failure.message if result.failure else failed.get("ledger")
    return f"it failed: {why}" if why else "its ledger pass did not run (passes=...)"


def _tables(found: "LedgerTables", num_tensors: int, *, ascii_only: bool) -> "Iterable[FittedTable | str]":
    from functools import partial

    from rich.markup import escape

    from dpprof.cli.fitted_tables import one, table, two
    from dpprof.cli.text_bars import bar
    from dpprof.reports.colors import words
    from dpprof.vocabulary.formats import fixed

    where, origin = escape(found.peak_phase), escape(found.origin)
    yield f"peak [b]{fixed(found.held_mib, 2)} MiB[/] in [b]{where}[/]: {origin}"
    longest = max((share.pct for share in found.at_peak), default=0.0)
    drawn = partial(bar, longest=longest, width=_BAR_WIDTH, ascii_only=ascii_only)
    if found.doubt:
        yield f"[yellow]warning:[/] {escape(found.doubt)}"
    yield table(
        "At the peak",
        [("category", str), ("MiB", two), ("%", one), ("", str)],
        [
            *((words(share.category), share.mib, share.pct, drawn(share.pct)) for share in found.at_peak),
            ("together", found.held_mib, 100.0, ""),
        ],
    )
    if num_tensors and found.tensors:
        yield _largest_tensors(found, num_tensors)
    yield table(
        "Peak of each phase",
        [("phase", str), ("ms", two), ("ledger's MiB", two), ("allocator's MiB", two), ("most of it", str)],
        [(p.phase, p.ms, p.peak_mib, p.allocator_mib, words(p.largest)) for p in found.phases],
    )
    if found.norms:
        yield _norms(found)
    for first, rows in (("phase", [*found.by_phase, found.moved]), ("operator class", found.by_class)):
        yield table(
            f"Bytes moved by {first}, if nothing stayed in a cache",
            [(first, str), ("read MiB", one), ("written MiB", one), ("GFLOP", two), ("FLOP/byte", one)],
            [
                (
                    words(row.name) if rows is found.by_class else row.name,
                    row.read_mib,
                    row.written_mib,
                    row.gflop,
                    row.intensity,
                )
                for row in rows
            ],
        )


def _largest_tensors(found: "LedgerTables", num_tensors: int) -> "FittedTable":
    from dpprof.cli.fitted_tables import table, two
    from dpprof.reports.colors import words

    shown = found.tensors[:num_tensors]
    names = ("category", "of", "shape", "type", "made in", "by")
    rows = [(t.mib, words(t.category), t.owner, t.shape, t.dtype, t.phase, t.operator) for t in shown]
    title = f"Largest tensors at the peak ({len(shown)} of {found.num_tensors})"
    return table(title, [("MiB", two), *((name, str) for name in names)], rows)


def _norms(found: "LedgerTables") -> "FittedTable":
    from dpprof.cli.fitted_tables import table, two

    return table(
        "Norms of per-sample gradients, by weight",
        [("layer", str), ("T", str), ("weight", str), ("form", str), ("GFLOP", two), ("MiB", two)],
        [(n.layers, f"{n.positions:,}", n.weight, n.form, n.norm_gflop, n.norm_mib) for n in found.norms],
    )
