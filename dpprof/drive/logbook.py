"""Logs a campaign to MLflow from a separate thread, so that a store that hangs blocks nobody."""

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from threading import Lock, Thread
from typing import Any, ParamSpec, TypeVar

from dpprof.drive.jobs import Stop
from dpprof.errors import TrackingError
from dpprof.process import leave_behind
from dpprof.record.figures.results import KILLED
from dpprof.tracking.tracker import Tracker

# How long a call to the store may take after the user stopped everything.
_GRACE_S = 5.0
# How long closing the open runs may take then.
_CLOSING_S = 3.0
_POLL_S = 0.05

P = ParamSpec("P")
T = TypeVar("T")


class Logbook:
    """Calls a tracker's methods one at a time. `warn` gets each refusal once, and unreadable links."""

    def __init__(self, tracker: Tracker, stop: Stop, warn: Callable[[str], None]) -> None:
        self.tracker = tracker
        self.not_logged: TrackingError | None = None
        self._stop = stop
        self._warn = warn
        self._warned: set[str] = set()
        self._lock = Lock()
        self._hangs: TrackingError | None = None
        self._thread = ThreadPoolExecutor(1, "MLflow")

    def do(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a method of the tracker. Thread-safe. Raises TrackingError."""
        with self._lock:
            if self._hangs is not None:
                raise self._hangs
            future = self._thread.submit(call, *args, **kwargs)
            self._wait(future)
            while self.tracker.damaged:
                self._warn(self.tracker.damaged.pop(0))
        return future.result()

    def attempt(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """Call it, but on TrackingError keep the error, warn, and return None."""
        try:
            return self.do(call, *args, **kwargs)
        except TrackingError as error:
            self.not_logged = error
            if str(error) not in self._warned:
                self._warned.add(str(error))
                self._warn(str(error))
            return None

    def close(self) -> None:
        """End the thread after the calls already queued."""
        self._thread.shutdown(wait=False)

    def _wait(self, future: "Future[Any]") -> None:
        """Wait for a call. After the user stopped everything, a single request to the store must end soon."""
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
                # Past the call that hangs: the store may answer others.
                thread = Thread(target=self.tracker.close_abandoned, args=(KILLED,), daemon=True)
                thread.start()
                thread.join(_CLOSING_S)
                raise self._hangs
