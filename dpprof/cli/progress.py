"""Progress on the terminal: a live line for what is running, plain lines where there is no terminal."""

import time
from threading import Lock
from types import TracebackType
from typing import Self

from rich.markup import escape
from rich.progress import Progress as LiveLine
from rich.progress import SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from dpprof.cli.console import open_console
from dpprof.drive.launch.launcher import Machine
from dpprof.figures.gradient_verdict import CANNOT_TELL, FAIL, PASS
from dpprof.figures.results import FINISHED, Result, describe, nonfinite_losses

_BUSY_PCT = 15.0
# Of a finished experiment's line, by what the gradient check says.
_COLORS = {PASS: "green", CANNOT_TELL: "yellow", FAIL: "red"}


class Progress:
    """Shows which experiment of how many runs, for how long, and what the last one gave."""

    def __init__(self) -> None:
        self.console = open_console(soft_wrap=True)
        self._live: LiveLine | None = None
        self._running: dict[str, tuple[str, TaskID | None]] = {}
        self._lock = Lock()
        self._began = time.monotonic()
        self._told: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def say(self, text: str) -> None:
        """A plain line."""
        self.console.print(escape(text))

    def warn(self, text: str) -> None:
        """A line that must be seen."""
        self.console.print(f"[yellow]warning:[/] {escape(text)}")

    def warn_if_busy(self, machine: Machine) -> None:
        """Warn if other programs use the processors: step times would be far too long, and comparing them
        would be worthless.
        """
        busy = machine.busy_pct()
        if busy > _BUSY_PCT:
            self.warn(
                f"this machine is {busy:.0f} % busy with other work: times will be too long, and where runs "
                "are disturbed no trainer is called fastest"
            )

    def started(self, index: int, total: int, name: str) -> None:
        """Experiment `index` of `total` begins."""
        where = f"[{index}/{total}] {name}"
        with self._lock:
            task = self._line().add_task(escape(where), total=None) if self.console.is_terminal else None
            self._running[name] = where, task
        if task is None:
            self.say(f"{where} started after {time.monotonic() - self._began:.0f} s")

    def line(self, name: str, text: str) -> None:
        """What the measuring process of an experiment says goes into its live line."""
        with self._lock:
            where, task = self._running[name]
            if self._live is not None and task is not None:
                self._live.update(task, description=escape(f"{where}: {text}"))

    def ended(self, result: Result) -> None:
        """The experiment's result as one line."""
        with self._lock:
            where, task = self._running.pop(result.name)
            if self._live is not None and task is not None:
                self._live.remove_task(task)
            if not self._running:
                self._stop()
        verdict = result.gradient_verdict
        color = _COLORS[verdict.word if verdict else PASS] if result.status == FINISHED else "red"
        elapsed = f"[dim]after {time.monotonic() - self._began:.0f} s[/]" if self.console.is_terminal else ""
        self.console.print(f"{escape(where)} [{color}]{escape(describe(result))}[/] {elapsed}".rstrip())
        ledger = result.figures.ledger if result.figures else None
        doubt = ledger.doubt if ledger else None
        if doubt:
            self.warn(doubt)
        if result.record is None:
            return
        if result.record.nonfinite_losses:
            self.warn(f"{nonfinite_losses(result.record)}: these steps do not train")
        reasons = {why: f"no {name}: {why}" for name, why in result.record.skipped_passes.items()}
        for why, text in (reasons | {text: text for text in result.record.warnings}).items():
            if why not in self._told:  # once, however many experiments it concerns
                self._told.add(why)
                self.warn(text)

    def _line(self) -> LiveLine:
        """The lines of what is running, one for each."""
        if self._live is None:
            self._live = LiveLine(
                SpinnerColumn(),
                TextColumn("{task.description}"),
                TimeElapsedColumn(),
                console=self.console,
                refresh_per_second=2,
                transient=True,
            )
            self._live.start()
        return self._live

    def _stop(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
