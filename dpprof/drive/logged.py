"""Logs existing folders: of a single run, or of the runs behind an answer."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from dpprof.drive.advise import Advise
from dpprof.drive.campaign import Campaign, Stage
from dpprof.drive.fit import Fit
from dpprof.drive.plan import Plan
from dpprof.record.figures.results import FINISHED, KILLED, Result
from dpprof.tracking.tracker import Summary

# Kinds of campaigns whose runs are the evaluations behind an answer.
SEARCHES = (Fit.kind, Plan.kind, Advise.kind)


@dataclass
class Logged(Campaign):
    """Results in the campaign's folder: of a search (`kind`) under its parent run, else of a single run."""

    kept: Sequence[Result]
    kind: str = ""

    def stages(self) -> Iterator[Stage]:
        """Yield the results unchanged."""
        yield Stage([partial(lambda kept, run_one: [kept], result) for result in self.kept], at_a_time=1)

    @property
    def status(self) -> str:
        """FINISHED if it has answers."""
        return FINISHED if self._has_answers and not self.interrupted else KILLED

    @property
    def _has_answers(self) -> bool:
        return (self.folder.path / f"{self.kind}.json").exists()

    def summarize(self) -> Summary | None:
        """Return the answers as they were written."""
        if not self.kind:
            return None
        if not self._has_answers:
            return Summary("stopped before there was an answer")
        folder = self.folder.path
        text = (folder / f"{self.kind}.md").read_text(encoding="utf-8")
        names = [f"{kind}.{ending}" for kind in SEARCHES for ending in ("html", "md", "json")]
        files = [path for name in names if (path := folder / name).exists()]
        if self.kind != Fit.kind:
            return Summary(text, files)
        rows = json.loads((folder / f"{self.kind}.json").read_text(encoding="utf-8"))
        return Summary(text, files, {name: [row[name] for row in rows] for name in rows[0]})
