"""Progress on the terminal: a live line where there is one, plain lines elsewhere."""

import time
from types import TracebackType
from typing import Self

import psutil
from rich.markup import escape
from rich.progress import Progress as LiveLine
from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

from dpprof.cli.console import open_console
from dpprof.metrics import ledger_doubt, unexplained_pct
from dpprof.results import FINISHED, Result, describe

_BUSY_PCT = 15.0


class Progress:
    """Shows which experiment of how many runs, for how long, and what the last one gave."""

    def __init__(self) -> None:
        self.console = open_console(soft_wrap=True)
        self._live: LiveLine | None = None
        self._where = ""
        self._began = time.monotonic()

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

    def warn_if_busy(self) -> None:
        """Say so if other programs use the processors: times would be too long, far beyond their share."""
        busy = psutil.cpu_percent(interval=0.5)
        if busy > _BUSY_PCT:
            self.warn(f"this machine is {busy:.0f} % busy with other work; times will be too long")

    def started(self, index: int, total: int, name: str) -> None:
        """Experiment `index` of `total` begins."""
        elapsed = time.monotonic() - self._began
        self._where = f"[{index}/{total}] {name}"
        if self.console.is_terminal:
            self._live = LiveLine(
                SpinnerColumn(),
                TextColumn("{task.description}"),
                TimeElapsedColumn(),
                console=self.console,
                refresh_per_second=2,
                transient=True,
            )
            self._live.add_task(escape(self._where), total=None)
            self._live.start()
        else:
            self.say(f"{self._where} started after {elapsed:.0f} s")

    def line(self, text: str) -> None:
        """What the measuring process says goes into the live line."""
        if self._live is not None:
            self._live.update(self._live.task_ids[0], description=escape(f"{self._where}: {text}"))

    def ended(self, result: Result) -> None:
        """The experiment's result as one line."""
        self._stop()
        color = "green" if result.status == FINISHED else "red"
        elapsed = f"[dim]after {time.monotonic() - self._began:.0f} s[/]" if self.console.is_terminal else ""
        self.console.print(f"{escape(self._where)} [{color}]{escape(describe(result))}[/] {elapsed}".rstrip())
        doubt = result.record and ledger_doubt(unexplained_pct(result.record))
        if doubt:
            self.warn(doubt)

    def _stop(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
