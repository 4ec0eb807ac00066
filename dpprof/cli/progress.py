"""Progress in the terminal: live lines for what runs, plain lines without a terminal."""

import time
from typing import Self

from rich.console import Group
from rich.live import Live
from rich.progress import BarColumn, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.table import Column
from rich.text import Text

from dpprof.cli.console import VERDICT_COLORS, open_console, short_run_name, warn
from dpprof.drive.launch.launcher import Machine
from dpprof.pages.document import Document
from dpprof.pages.terminal import show, write
from dpprof.record.figures.ledger import ledger_doubt
from dpprof.record.figures.results import FINISHED, Result, describe, nonfinite_losses
from dpprof.record.figures.verdicts import PASS

_BUSY_PCT = 15.0
_OPENING, _CLOSING = "checking the workload, opening MLflow's store", "writing the reports, logging to MLflow"
_ALWAYS = 1e9  # seconds over which the rate of finished experiments is taken


class Progress:
    """Shows running experiments, times and results in live lines, `shown`; the total only if `is_counted`."""

    def __init__(self, *, is_counted: bool = True) -> None:
        self.console = open_console()
        self._is_counted = is_counted
        self._began = time.monotonic()
        line = Column(no_wrap=True, ratio=1, overflow="ellipsis")
        self._running = Bars(
            SpinnerColumn(),
            TextColumn("{task.description}{task.fields[doing]}", markup=False, table_column=line),
            TimeElapsedColumn(),
            expand=True,
        )
        self._idle = self._running.add_task(_OPENING, total=None, doing="")
        self._tasks: dict[str, TaskID] = {}
        self._done = Bars(
            BarColumn(bar_width=20),
            TextColumn("{task.completed} of {task.total} done after"),
            TimeElapsedColumn(),
            TextColumn("· left"),
            TimeRemainingColumn(),
            speed_estimate_period=_ALWAYS,
        )
        self._all = self._done.add_task("", total=None, visible=False)
        self.begin_at(0)
        self.shown = Group(self._running, self._done)
        self._live = Live(self.shown, console=self.console, refresh_per_second=4, transient=True)
        self._told: set[str] = set()

    @property
    def duration(self) -> str:
        """Time since the start, in words."""
        return duration(time.monotonic() - self._began)

    def __enter__(self) -> Self:
        if self.console.is_interactive:
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the live lines; plain lines may follow."""
        self._live.stop()

    def begin_at(self, num_kept: int) -> None:
        """Count experiments that need not run again, without their time."""
        self._done.reset(self._all, completed=num_kept, visible=False)
        self._done.advance(self._all, 0)

    def say(self, text: str) -> None:
        """Print a plain line."""
        write(self.console, text)

    def show(self, page: Document) -> None:
        """Print a page, and an empty line after it."""
        show(self.console, page)
        self.console.print()

    def warn(self, text: str) -> None:
        """Print a warning."""
        warn(self.console, text)

    def warn_if_busy(self, machine: Machine) -> None:
        """Warn if other programs use the processors, which makes step times too long to compare."""
        busy = machine.busy_pct()
        if busy > _BUSY_PCT:
            self.warn(
                f"the processors are {busy:.0f} % busy with other work: times will be too long, and where "
                "runs are disturbed no trainer is called fastest"
            )

    def started(self, index: int, total: int, name: str) -> None:
        """Show that experiment `index` of `total` starts."""
        shown = short_run_name(name) if self.console.is_terminal else name
        self._tasks[name] = self._running.add_task(f"[{index}/{total}] {shown}", total=None, doing="")
        self._running.update(self._idle, visible=False)
        if self._is_counted:
            self._done.update(self._all, total=total, visible=True)
        if not self.console.is_terminal:
            self.say(f"[{index}/{total}] {name} started after {time.monotonic() - self._began:.0f} s")

    def line(self, name: str, text: str) -> None:
        """Show a message of the measuring process in its live line."""
        self._running.update(self._tasks[name], doing=f": {text}")

    def ended(self, result: Result) -> None:
        """Print the experiment's result in one line, with warnings."""
        task = self._tasks.pop(result.name)
        (label,) = (one.description for one in self._running.tasks if one.id == task)
        self._running.remove_task(task)
        self._running.update(self._idle, description=_CLOSING, visible=not self._tasks)
        self._done.advance(self._all)
        verdict = result.worst_verdict
        color = VERDICT_COLORS[verdict.word if verdict else PASS] if result.status == FINISHED else "red"
        write(self.console, Text.assemble(label, " ", (describe(result), color)))
        ledger = result.figures.ledger if result.figures else None
        doubt = ledger_doubt(ledger.unexplained_pct) if ledger else None
        if doubt:
            self.warn(doubt)
        if result.record is None:
            return
        if result.record.nonfinite_losses:
            self.warn(f"{nonfinite_losses(result.record)}: these steps do not train")
        reasons = {why: f"no {name}: {why}" for name, why in result.record.skipped_passes.items()}
        for why, text in (reasons | {text: text for text in result.record.warnings}).items():
            if why not in self._told:  # once for all experiments
                self._told.add(why)
                self.warn(text)


def duration(seconds: float) -> str:
    """Return seconds in words: `45 s`, `4 min 12 s`, `1 h 3 min`."""
    minutes, rest = divmod(round(seconds), 60)
    if not minutes:
        return f"{rest} s"
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"
