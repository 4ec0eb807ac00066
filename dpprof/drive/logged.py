"""What lies in folders already, logged as it is: a single run, or the runs behind an answer."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from dpprof.drive.advise import ADVICE
from dpprof.drive.campaign import Campaign, RunOne, Stage
from dpprof.drive.fit import FIT
from dpprof.drive.logbook import Summary
from dpprof.drive.plan import PLAN
from dpprof.errors import Interrupted
from dpprof.figures.results import FINISHED, KILLED, Result
from dpprof.tracking.tracker import Tracker

# The kinds of campaigns whose runs are the evaluations that an answer rests on.
SEARCHES = (FIT, PLAN, ADVICE)


@dataclass
class LoggedRun(Campaign):
    """Results in the folder of the campaign's name, each with an MLflow run that stands alone."""

    kept: Sequence[Result]

    @property
    def to_log(self) -> Path:
        """The run's folder, if there is one run."""
        return self.kept[0].folder.path if len(self.kept) == 1 else self.folder.path

    def stages(self) -> Iterator[Stage]:
        """Every result as it is."""
        yield Stage([partial(_given, result) for result in self.kept], at_a_time=1)

    def has_failed(self) -> bool:
        """Nothing is done that could."""
        return False

    def summarize(self) -> Summary | None:
        """Each run says all of itself."""
        return None

    def raise_for_end(self) -> None:
        """Stopped."""
        if self.interrupted:
            raise Interrupted(f"stopped while logging {self.to_log}; the same command goes on")


@dataclass
class LoggedSearch(LoggedRun):
    """The runs of a search, a plan or an advice (`kind`) that were to be in MLflow, under its parent run."""

    kind: str

    @property
    def tags(self) -> dict[str, str]:
        """Every run bears its name."""
        return {f"dpprof.{self.kind}": self.name}

    @property
    def to_log(self) -> Path:
        """Its folder."""
        return self.folder.path

    @property
    def status(self) -> str:
        """Finished, if it came to its answers."""
        return FINISHED if self._answers.exists() and not self.interrupted else KILLED

    @property
    def _answers(self) -> Path:
        return self.folder.path / f"{self.kind}.json"

    def open_parent(self, tracker: Tracker) -> str:
        """Open its parent run."""
        earlier = self.folder.read_state().get("mlflow_run_id")
        return tracker.start_parent(self.name, self.kind, {}, self.folder, earlier)

    def summarize(self) -> Summary:
        """The answers, as they were written."""
        if not self._answers.exists():
            return Summary("stopped by the user")
        text = (self.folder.path / f"{self.kind}.md").read_text(encoding="utf-8")
        names = [f"{kind}.{ending}" for kind in SEARCHES for ending in ("html", "md", "json")]
        files = [path for name in names if (path := self.folder.path / name).exists()]
        if self.kind != FIT:
            return Summary(text, files)
        rows = json.loads(self._answers.read_text(encoding="utf-8"))
        return Summary(text, files, {name: [row[name] for row in rows] for name in rows[0]})


def _given(result: Result, run_one: RunOne) -> list[Result]:
    return [result]
