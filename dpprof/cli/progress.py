"""Progress on the terminal: live lines for what is running, plain lines where there is no terminal."""

from threading import Lock
from types import TracebackType
from typing import Self

from rich.live import Live
from rich.text import Text

from dpprof.cli.console import VERDICT_COLORS, open_console, short_run_name, warn, write
from dpprof.cli.running import Running
from dpprof.drive.launch.launcher import Machine
from dpprof.figures.gradient_verdict import PASS
from dpprof.figures.results import FINISHED, Result, describe, nonfinite_losses

_BUSY_PCT = 15.0
_OPENING, _CLOSING = "checking the workload, opening MLflow's store", "writing the reports, logging to MLflow"


class Progress:
    """Shows which experiments of how many run, for how long, and what those that ended gave.

    `num_kept` are done already. Where `is_counted` is false nobody knows how many there will be.
    """

    def __init__(self, num_kept: int = 0, *, is_counted: bool = True) -> None:
        self.console = open_console()
        self._is_counted = is_counted
        self._running = Running(_OPENING, num_done=num_kept)
        self._live = Live(self._running, console=self.console, refresh_per_second=4, transient=True)
        self._lock = Lock()
        self._told: set[str] = set()

    @property
    def seconds(self) -> float:
        """Since it began."""
        return self._running.seconds

    def __enter__(self) -> Self:
        if self.console.is_interactive:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def say(self, text: str) -> None:
        """A plain line."""
        write(self.console, text)

    def warn(self, text: str) -> None:
        """A line that must be seen."""
        warn(self.console, text)

    def warn_if_busy(self, machine: Machine) -> None:
        """Warn if other programs use the processors: step times would be far too long, and comparing them
        would be worthless.
        """
        busy = machine.busy_pct()
        if busy > _BUSY_PCT:
            self.warn(
                f"the processors are {busy:.0f} % busy with other work: times will be too long, and where "
                "runs are disturbed no trainer is called fastest"
            )

    def started(self, index: int, total: int, name: str) -> None:
        """Experiment `index` of `total` begins."""
        with self._lock:
            shown = short_run_name(name) if self.console.is_terminal else name
            if self._is_counted:
                self._running.total = total
            self._running.start(name, f"[{index}/{total}] {shown}")
        if not self.console.is_terminal:
            self.say(f"[{index}/{total}] {name} started after {self.seconds:.0f} s")

    def line(self, name: str, text: str) -> None:
        """What the measuring process of an experiment says goes into its live line."""
        with self._lock:
            self._running.says(name, text)

    def ended(self, result: Result) -> None:
        """The experiment's result as one line."""
        with self._lock:
            label = self._running.end(result.name)
            self._running.otherwise = _CLOSING
        verdict = result.worst_verdict
        color = VERDICT_COLORS[verdict.word if verdict else PASS] if result.status == FINISHED else "red"
        write(self.console, Text.assemble(label, " ", (describe(result), color)))
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
