"""A campaign's way to MLflow: in a thread of its own, so that a store that hangs holds nobody up."""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, ParamSpec, Protocol, TypeVar

from dpprof.drive.stop import Stop
from dpprof.errors import TrackingError
from dpprof.figures.results import KILLED, Result
from dpprof.process import leave_behind
from dpprof.tracking.tracker import Tracker
from dpprof.tracking.view import View

# How long a call to the store may take once the user stopped everything.
_GRACE_S = 5.0
# And how long the closing of what a call left open.
_CLOSING_S = 3.0
_POLL_S = 0.05

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Summary:
    """What the parent run says at the end. `ratios` are figures for the children, by run name; `view` is how
    MLflow is to set them side by side.
    """

    description: str
    files: Sequence[Path] = ()
    table: Mapping[str, list[Any]] | None = None
    figures: Mapping[str, float] = field(default_factory=dict)
    ratios: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    view: View | None = None


class Logged(Protocol):
    """A campaign, as far as it is logged: the results so far, and the ids of its runs in MLflow."""

    parent: str | None
    results: list[Result]
    run_ids: dict[str, str]

    @property
    def status(self) -> str:
        """MLflow's status of the parent run."""

    @property
    def tags(self) -> dict[str, str]:
        """The tags that its runs have beside their own."""

    @property
    def has_several_models(self) -> bool:
        """Whether the names of its runs in MLflow tell their models."""


class Logbook:
    """Has a tracker's methods called, one at a time. `warn` tells the user what MLflow refused, once each,
    and which links cannot be read.
    """

    def __init__(self, tracker: Tracker, stop: Stop, warn: Callable[[str], None]) -> None:
        self.tracker = tracker
        # The last thing that MLflow refused.
        self.not_logged: TrackingError | None = None
        self._stop = stop
        self._warn = warn
        self._warned: set[str] = set()
        self._lock = Lock()
        self._hangs: TrackingError | None = None
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        Thread(target=self._work, name="MLflow", daemon=True).start()

    def do(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What a call of the tracker returns. Several threads may ask. Raises TrackingError."""
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(call(*args, **kwargs))
            except BaseException as error:
                future.set_exception(error)

        with self._lock:
            if self._hangs is not None:
                raise self._hangs
            self._calls.put(run)
            self._wait(future)
            while self.tracker.damaged:
                self._warn(self.tracker.damaged.pop(0))
        return future.result()

    def attempt(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """The same; what MLflow refuses is kept and told, and gives None."""
        try:
            return self.do(call, *args, **kwargs)
        except TrackingError as error:
            self.not_logged = error
            if str(error) not in self._warned:
                self._warned.add(str(error))
                self._warn(str(error))
            return None

    def log(self, campaign: Logged, result: Result) -> None:
        """Log a result of a campaign."""
        run_id = self.attempt(
            self.tracker.log_result,
            result,
            campaign.tags,
            campaign.parent,
            names_model=campaign.has_several_models,
        )
        if run_id is not None:
            campaign.run_ids[result.name] = run_id
            if left_out := result.folder.artifacts().left_out:
                self._warn(f"{result.name}: not uploaded: {', '.join(left_out)}")

    def close_parent(self, campaign: Logged, summary: Summary | None) -> None:
        """Add to the children what only the whole tells, and close the parent run."""
        parent, tracker = campaign.parent, self.tracker
        if summary is None or parent is None:
            return
        for result in campaign.results:
            if result.name in summary.ratios and result.name in campaign.run_ids:
                run_id = campaign.run_ids[result.name]
                self.attempt(tracker.log_metrics, run_id, summary.ratios[result.name], result.config)
        if summary.figures:
            self.attempt(tracker.log_metrics, parent, summary.figures)
        self.attempt(
            tracker.finish_parent,
            parent,
            campaign.status,
            summary.description,
            summary.files,
            summary.table,
            summary.tags,
            summary.view,
        )

    def close(self) -> None:
        """End the thread once it has done what was asked of it."""
        self._calls.put(_end)

    def _work(self) -> None:
        while (call := self._calls.get()) is not _end:
            call()

    def _wait(self, future: "Future[Any]") -> None:
        """Wait for a call's end. Once the user stopped everything, one call to the store has to end soon."""
        store = self.tracker.store
        stopped_at: float | None = None
        while not wait([future], _POLL_S).done:
            if not self._stop.requested:
                continue
            now, since = time.monotonic(), store.asking_since
            stopped_at = stopped_at or now
            if since is not None and now - max(since, stopped_at) > _GRACE_S:
                self._hangs = store.leave("stopped while MLflow did not answer")
                leave_behind()
                self._close_what_is_open()
                raise self._hangs

    def _close_what_is_open(self) -> None:
        """Past the call that hangs: the store may answer others."""
        thread = Thread(target=self.tracker.close_abandoned, args=(KILLED,), daemon=True)
        thread.start()
        thread.join(_CLOSING_S)


def _end() -> None:
    """Put among the calls, ends the thread."""
