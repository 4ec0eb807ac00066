"""`dpprof show`: what the ledger of one experiment says, in the terminal."""

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rich.table import Table

    from dpprof.reports.tables import LedgerTables


@click.command()
@click.argument("run_folder", type=click.Path())
@click.option("--tensors", default=10, show_default=True, help="How many of the largest tensors to list.")
def show(run_folder: str, tensors: int) -> None:
    """Show one experiment's memory and traffic.

    Prints what fills the memory at the peak of a training step, the largest tensors there, and the bytes
    that each phase moves. Needs neither MLflow nor a GPU.

    \b
    dpprof show runs/<sweep>/<run>
    """
    from pathlib import Path

    from rich.markup import escape

    from dpprof.cli.console import open_console
    from dpprof.errors import ConfigError
    from dpprof.paths import RunFolder
    from dpprof.reports.tables import compute
    from dpprof.results import describe, read_result

    if tensors < 0:
        raise ConfigError(f"tensors: got {tensors}, allowed: 0 or more")
    if not Path(run_folder).is_dir():
        raise ConfigError(f"run_folder: got {run_folder!r}, allowed: a run folder that exists")
    folder = RunFolder(run_folder)
    if not folder.config.exists():
        raise ConfigError(f"run_folder: got {run_folder!r}, allowed: a folder with a config.json in it")
    result, timeline = read_result(folder), folder.read_timeline()
    record = result.record
    if record is None or record.ledger is None or timeline is None:
        why = (
            result.failure.message
            if result.failure
            else (record.failed_passes if record else {}).get("ledger")
        )
        reason = f"it failed: {why}" if why else "its ledger pass did not run (passes=...)"
        raise ConfigError(f"run_folder: {run_folder} has no ledger to show; {reason}")
    console = open_console()
    if result.config.is_estimate:
        console.print(f"[b]nothing was run[/], these are fake tensors: {escape(describe(result))}")
    for part in _tables(compute(record, record.ledger, timeline), tensors):
        console.print(part)


def _tables(found: "LedgerTables", num_tensors: int) -> "Iterable[Table | str]":
    from dpprof.reports.colors import words

    unexplained = found.unexplained_pct
    check = (
        ""
        if unexplained is None
        else f"; the ledger leaves {unexplained:.2f} % of the allocator's peak unexplained"
    )
    yield f"peak [b]{found.peak_mib:,.2f} MiB[/] in [b]{found.peak_phase}[/]{check}"
    if found.doubt:
        yield f"[yellow]warning:[/] {found.doubt}"
    yield _table(
        "At the peak",
        [("category", str), ("MiB", _two), ("%", _one)],
        [(words(share.category), share.mib, share.pct) for share in found.at_peak],
    )
    if num_tensors and found.tensors:
        shown = found.tensors[:num_tensors]
        yield _table(
            f"Largest tensors at the peak ({len(shown)} of {found.num_tensors})",
            [("MiB", _two), *((name, str) for name in ("category", "of", "shape", "type", "made in", "by"))],
            [
                (
                    t.mib,
                    words(t.category),
                    t.place,
                    t.shape,
                    t.dtype,
                    t.phase,
                    t.operator.removeprefix("aten::"),
                )
                for t in shown
            ],
        )
    yield _table(
        "Peak of each phase",
        [("phase", str), ("ms", _two), ("MiB", _two), ("allocator's MiB", _two), ("most of it", str)],
        [(p.phase, p.ms, p.peak_mib, p.allocator_mib, words(p.largest)) for p in found.phases],
    )
    for first, rows in (("phase", [*found.by_phase, found.moved]), ("operator class", found.by_class)):
        yield _table(
            f"Bytes moved by {first}, if nothing stayed in a cache",
            [(first, str), ("read MiB", _one), ("written MiB", _one), ("GFLOP", _two), ("FLOP/byte", _one)],
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


def _one(value: float | None) -> str:
    return "" if value is None else f"{value:,.1f}"


def _two(value: float | None) -> str:
    return "" if value is None else f"{value:,.2f}"


def _table(
    title: str, columns: "list[tuple[str, Callable[..., str]]]", rows: "Iterable[tuple[object, ...]]"
) -> "Table":
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for name, shown in columns:
        table.add_column(name, justify="left" if shown is str else "right", overflow="fold")
    for row in rows:
        table.add_row(*(escape(shown(value)) for (_, shown), value in zip(columns, row, strict=True)))
    return table
