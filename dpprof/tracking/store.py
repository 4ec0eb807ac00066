"""What writing to an MLflow store and reading from it share: names, patience and errors."""

import fcntl
import getpass
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import ParamSpec, Self, TypeVar

from mlflow import MlflowClient, get_tracking_uri
from mlflow.entities import Run
from mlflow.exceptions import MlflowException
from urllib3.exceptions import HTTPError, NewConnectionError
from urllib3.exceptions import TimeoutError as HTTPTimeout

from dpprof.errors import DpprofError, TrackingError
from dpprof.record.redacted import redacted

PARENT_TAG = "mlflow.parentRunId"
KIND_TAG = "dpprof.kind"
RUN_TAG = "dpprof.run"
# The trainer's short name, for charts with little room.
SHORT_PARAM = "trainer_short"
NOTE_TAG = "mlflow.note.content"
NO_SUCH_RUN = "RESOURCE_DOES_NOT_EXIST"
EXISTS = "RESOURCE_ALREADY_EXISTS"
INVALID = "INVALID_PARAMETER_VALUE"
_PAGE = 1000
# The first reports at length how a new store gets its tables, the second every error that it raises.
_TALKATIVE = {"alembic": logging.WARNING, "mlflow.store.db.utils": logging.CRITICAL}
# MLflow's setting for how many seconds a server may take to answer.
_LIMIT = "MLFLOW_HTTP_REQUEST_TIMEOUT"
_SQLITE = "sqlite:///"
# A call that fails for a reason that may pass is tried again after so many seconds: a few times where the
# store answers with an error, more often where nothing answers, as while a server is started again.
_PAUSES_S = (0.5, 1.0, 2.0, 4.0, 8.0)
_FEW = 3
# But not if it failed only after so long.
_PATIENCE_S = 15.0
_PASSING = {429, 500, 502, 503, 504}

P = ParamSpec("P")
T = TypeVar("T")


class Refused(TrackingError):
    """The store answered with an error, whose name in MLflow is `code`, or did not answer."""

    def __init__(self, error: Exception) -> None:
        super().__init__(f"MLflow at {store_name()} failed: {redacted(str(error))}")
        self.code = error.error_code if isinstance(error, MlflowException) else None


class Store:
    """The store that MLflow's own settings name (`MLFLOW_TRACKING_URI`, ...), asked with patience.

    After a time-out it counts as away: nothing more is sent, so that one that hangs is waited for once.
    """

    client: MlflowClient

    def __init__(self) -> None:
        self._away: TrackingError | None = None
        # Since when a call has been under way, by the clock that `time.monotonic` reads.
        self.asking_since: float | None = None

    def open(self) -> Self:
        """Open it; comes before everything else."""
        self.client = self.ask(_open)
        return self

    def ask(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What a call to the store returns.

        It is repeated after an error that may pass, so it must be one that can be. Raises TrackingError.
        """
        began = self.asking_since = time.monotonic()
        try:
            for num_tries, pause in enumerate((*_PAUSES_S, None)):
                if self._away is not None:
                    raise self._away
                try:
                    return call(*args, **kwargs)
                except DpprofError:
                    raise
                except Exception as error:  # MLflow lets through what boto3, SQLAlchemy and sockets raise
                    if _is_timeout(error):
                        limit = os.environ[_LIMIT]
                        why = f"MLflow at {store_name()} did not answer within {limit} s ({_LIMIT})"
                        raise self.leave(why) from error
                    is_enough = num_tries >= _FEW and not _is_broken(error)
                    is_late = time.monotonic() - began > _PATIENCE_S
                    if pause is None or is_enough or is_late or not _may_pass(error):
                        raise Refused(error) from error
                time.sleep(pause)
            raise AssertionError("the last try returned or raised")
        finally:
            self.asking_since = None

    def search(self, condition: str, experiments: list[str]) -> list[Run]:
        """The runs of experiments that meet a condition, all of them. Raises TrackingError."""
        found: list[Run] = []
        token: str | None = None
        while True:
            page = self.ask(
                self.client.search_runs, experiments, condition, max_results=_PAGE, page_token=token
            )
            found += page
            token = page.token
            if not token:
                return found

    def leave(self, why: str) -> TrackingError:
        """Send nothing more. Returns the error that every further call raises."""
        self._away = TrackingError(why)
        return self._away


def store_name() -> str:
    """Where runs are written and read."""
    return redacted(str(get_tracking_uri()))


def _open() -> MlflowClient:
    # MLflow's own default waits for two minutes.
    os.environ.setdefault(_LIMIT, "20")
    # MLflow would repeat a request whose answer was lost, and so make a run twice.
    os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"] = "0"
    for name, level in _TALKATIVE.items():
        logging.getLogger(name).setLevel(level)
    with _alone_with(str(get_tracking_uri())):
        return MlflowClient()


@contextmanager
def _alone_with(store: str) -> Iterator[None]:
    """Open an SQLite store in one process at a time: the first makes its tables, unguarded."""
    with ExitStack() as opened:
        if store.startswith(_SQLITE):
            database = Path(store.removeprefix(_SQLITE).partition("?")[0])
            with suppress(OSError):  # a folder that cannot be written has no new store
                lock = opened.enter_context(open(database.with_name(f".{database.name}.lock"), "a"))
                fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _is_timeout(error: Exception) -> bool:
    return any(
        isinstance(cause, (HTTPTimeout, TimeoutError)) and not isinstance(cause, NewConnectionError)
        for cause in _causes(error)
    )


def _may_pass(error: Exception) -> bool:
    """Whether the same call may do better in a second: a busy database or server, a broken connection."""
    if str(get_tracking_uri()).startswith("sqlite:"):
        return "is locked" in str(error)
    for cause in _causes(error):
        response = getattr(cause, "response", None)
        if getattr(response, "status_code", None) in _PASSING:
            return True
    is_passing = isinstance(error, MlflowException) and error.get_http_status_code() in _PASSING
    return is_passing or _is_broken(error)


def _is_broken(error: Exception) -> bool:
    """Whether nobody answered: no connection, or one that broke."""
    return any(isinstance(cause, HTTPError) for cause in _causes(error))


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error and those that it wraps: requests and urllib3 keep them as arguments and reasons."""
    seen: list[BaseException] = []
    left: list[object] = [error]
    while left:
        cause = left.pop()
        if isinstance(cause, BaseException) and cause not in seen:
            seen.append(cause)
            yield cause
            left += [cause.__cause__, cause.__context__, getattr(cause, "reason", None), *cause.args]


def user_name() -> str | None:
    """The name of whoever runs dpprof; None where the system knows none, as in some containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return None
