"""The live lines of what is running: each experiment with its pass, a bar over all of them, the time left."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from dpprof.cli.time_left import duration, left, seconds_left

_BAR_WIDTH = 20


def _now() -> float:
    return time.monotonic()


@dataclass
class _Experiment:
    """One that runs: what it is called, what it does just now, and since when it runs."""

    label: str
    doing: str = ""
    began: float = field(default_factory=_now)
    spinner: Spinner = field(default_factory=lambda: Spinner("dots"))

    @property
    def seconds(self) -> float:
        return _now() - self.began


@dataclass
class Running:
    """What runs and what is done. `num_done` counts those that were done before too; `total` is None where
    nobody knows how many there will be. `otherwise` is said while no experiment runs.
    """

    otherwise: str
    num_done: int = 0
    total: int | None = None
    began: float = field(default_factory=_now)
    _running: dict[str, _Experiment] = field(default_factory=dict)
    _took: list[float] = field(default_factory=list)
    _at_a_time: int = 1
    _spinner: Spinner = field(default_factory=lambda: Spinner("dots"))

    @property
    def seconds(self) -> float:
        """Since it began."""
        return _now() - self.began

    @property
    def seconds_left(self) -> float | None:
        """Until all are done, where that can be told."""
        if self.total is None:
            return None
        running = [one.seconds for one in self._running.values()]
        num_waiting = max(self.total - self.num_done - len(running), 0)
        return seconds_left(self._took, running, num_waiting, self._at_a_time)

    def start(self, name: str, label: str) -> None:
        """An experiment begins."""
        self._running[name] = _Experiment(label)
        self._at_a_time = max(self._at_a_time, len(self._running))

    def says(self, name: str, text: str) -> None:
        """What an experiment does now."""
        self._running[name].doing = text

    def end(self, name: str) -> str:
        """An experiment ended. Returns its label."""
        ended = self._running.pop(name)
        self._took.append(ended.seconds)
        self.num_done += 1
        return ended.label

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The lines as they are now."""
        lines = Table.grid(padding=(0, 1), expand=True)
        lines.add_column(no_wrap=True)
        lines.add_column(no_wrap=True, ratio=1, overflow="ellipsis")
        lines.add_column(no_wrap=True, justify="right")
        for one in list(self._running.values()):
            text = f"{one.label}: {one.doing}" if one.doing else one.label
            lines.add_row(one.spinner, Text(text), Text(duration(one.seconds), "dim"))
        if not self._running:
            lines.add_row(self._spinner, Text(self.otherwise), "")
        yield lines
        yield from self._bar()

    def _bar(self) -> Iterator[RenderableType]:
        if not self.total:
            return
        said = f"{self.num_done} of {self.total} done after {duration(self.seconds)}"
        seconds = self.seconds_left
        if seconds is not None and self.num_done < self.total:
            said += f", {left(seconds)}"
        line = Table.grid(padding=(0, 1))
        line.add_column(width=_BAR_WIDTH)
        line.add_column(no_wrap=True, overflow="ellipsis")
        line.add_row(ProgressBar(self.total, self.num_done, width=_BAR_WIDTH), Text(said))
        yield line
