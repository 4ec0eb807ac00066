"""An MLflow store: retries and errors of its calls, and writing in batches within MLflow's limits."""

import fcntl
import json
import logging
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import ParamSpec, Self, TypeVar

from mlflow import MlflowClient, get_tracking_uri, search_runs
from mlflow.entities import Metric, Param, Run, RunTag
from mlflow.exceptions import MlflowException
from mlflow.tracking.multimedia import Image
from mlflow.utils.mlflow_tags import MLFLOW_LOGGED_ARTIFACTS
from urllib3.exceptions import HTTPError, NewConnectionError
from urllib3.exceptions import TimeoutError as HTTPTimeout

from dpprof.errors import DpprofError, TrackingError
from dpprof.record.link import redacted

PARENT_TAG = "mlflow.parentRunId"
KIND_TAG = "dpprof.kind"
RUN_TAG = "dpprof.run"
SHORT_PARAM = "trainer_short"
NOTE_TAG = "mlflow.note.content"
EXISTS = "RESOURCE_ALREADY_EXISTS"
_NO_SUCH_RUN, _INVALID = "RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"
# MLflow's limits.
_MAX_DESCRIPTION, _MAX_TAG = 8000, 5000
_METRICS_PER_BATCH, _PARAMS_PER_BATCH = 1000, 100
# alembic reports each table of a new store, the other logs every error before raising it.
_TALKATIVE = {"alembic": logging.WARNING, "mlflow.store.db.utils": logging.CRITICAL}
# MLflow's time-out of requests, in seconds.
_LIMIT = "MLFLOW_HTTP_REQUEST_TIMEOUT"
_SQLITE = "sqlite:///"
# Pauses before retries after transient errors: `_FEW` retries if the store answers with an error, all if
# nothing answers, as while a server restarts.
_PAUSES_S = (0.5, 1.0, 2.0, 4.0, 8.0)
_FEW = 3
# No more retries after this long.
_PATIENCE_S = 15.0
_PASSING = {429, 500, 502, 503, 504}

P = ParamSpec("P")
T = TypeVar("T")


class Refused(TrackingError):
    """The store answered with an error (MLflow's name of it is `code`) or did not answer."""

    def __init__(self, error: Exception) -> None:
        super().__init__(f"MLflow at {store_name()} failed: {redacted(str(error))}")
        self.code = error.error_code if isinstance(error, MlflowException) else None


class Store:
    """The store set by `MLFLOW_TRACKING_URI` and MLflow's other settings; retries transient errors.

    It gets no more requests after a time-out, so that a hanging store is waited for only once. All methods
    raise TrackingError if the store refuses.
    """

    client: MlflowClient

    def __init__(self) -> None:
        self._away: TrackingError | None = None
        # Start of the current call (`time.monotonic`).
        self.asking_since: float | None = None

    def open(self) -> Self:
        """Open the store; must be called first."""
        self.client = self.ask(_open)
        return self

    def ask(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call the store, with retries: the call must be repeatable. Raises TrackingError."""
        began = self.asking_since = time.monotonic()
        try:
            for num_tries, pause in enumerate((*_PAUSES_S, None)):
                if self._away is not None:
                    raise self._away
                try:
                    return call(*args, **kwargs)
                except DpprofError:
                    raise
                except Exception as error:  # MLflow passes on errors of boto3, SQLAlchemy and sockets
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

    def run(self, run_id: str) -> Run | None:
        """Return a run, also a deleted one; None if the store has none with this id."""
        try:
            return self.ask(self.client.get_run, run_id)
        except Refused as error:
            if error.code in (_NO_SUCH_RUN, _INVALID):
                return None
            raise

    def search(self, condition: str, experiments: list[str] | None = None) -> list[Run]:
        """Return all runs of some experiments, or of all, that meet a condition."""
        search: Callable[..., list[Run]] = partial(search_runs, output_format="list")
        return self.ask(search, experiments, condition, search_all_experiments=experiments is None)

    def leave(self, why: str) -> TrackingError:
        """Send no more requests. Returns the error that every further call raises."""
        self._away = TrackingError(why)
        return self._away

    def log_params(self, run_id: str, params: Mapping[str, object]) -> None:
        """Log params, except those already there: `mlflow run` logs them as given."""
        present = self.ask(self.client.get_run, run_id).data.params
        missing = [Param(name, str(value)) for name, value in params.items() if name not in present]
        for i in range(0, len(missing), _PARAMS_PER_BATCH):
            self.ask(self.client.log_batch, run_id, params=missing[i : i + _PARAMS_PER_BATCH])

    def log_metrics(self, run_id: str, values: Iterable[tuple[str, float, int]]) -> None:
        """Log metrics given as name, value and step."""
        now = int(1000 * time.time())
        listed = [Metric(name, value, now, step) for name, value, step in values]
        for i in range(0, len(listed), _METRICS_PER_BATCH):
            self.ask(self.client.log_batch, run_id, metrics=listed[i : i + _METRICS_PER_BATCH])

    def set_tags(self, run_id: str, tags: Mapping[str, str]) -> None:
        """Set tags, cut to MLflow's limit."""
        listed = [RunTag(name, value[:_MAX_TAG]) for name, value in tags.items()]
        self.ask(self.client.log_batch, run_id, tags=listed)

    def describe(self, run_id: str, text: str) -> None:
        """Set the description, cut at a line's end to MLflow's limit; a note says that it was cut."""
        if len(text) > _MAX_DESCRIPTION:
            note = "\n\n(cut here; the whole is in the artifact `summary.md`)"
            kept = text[: _MAX_DESCRIPTION - len(note)]
            text = kept[: kept.rfind("\n")] + note
        self.ask(self.client.set_tag, run_id, NOTE_TAG, text)

    def log_tables(self, run_id: str, tables: Mapping[str, Mapping[str, list[object]]]) -> None:
        """Log all tables of a run, each as columns by name, replacing earlier ones unlike `log_table`."""
        for name, columns in tables.items():
            rows = [
                [None if isinstance(each, float) and not math.isfinite(each) else each for each in row]
                for row in zip(*columns.values(), strict=True)
            ]  # JSON has no NaN and no infinity
            self.ask(self.client.log_dict, run_id, {"columns": list(columns), "data": rows}, name)
        if tables:
            listed = json.dumps([{"path": name, "type": "table"} for name in tables])
            self.ask(self.client.set_tag, run_id, MLFLOW_LOGGED_ARTIFACTS, listed)

    def log_image(self, run_id: str, path: Path, key: str) -> None:
        """Log an image for MLflow's chart view. If the answer is lost, it is there twice."""
        self.ask(self.client.log_image, run_id, Image(str(path)), key=key, synchronous=True)

    def log_files(
        self, run_id: str, files: Iterable[Path], root: Path | None = None, under: str = ""
    ) -> None:
        """Log files in the folder `under` of the artifacts, by their names or paths relative to `root`."""
        for path in files:
            place = Path(under, path.parent.relative_to(root or path.parent)).as_posix()
            self.ask(self.client.log_artifact, run_id, str(path), None if place == "." else place)


def store_name() -> str:
    """Return the store's address without secrets."""
    return redacted(str(get_tracking_uri()))


def _open() -> MlflowClient:
    # MLflow's own default waits for two minutes.
    os.environ.setdefault(_LIMIT, "20")
    # MLflow would repeat a request whose answer was lost, and so create a run twice.
    os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"] = "0"
    for name, level in _TALKATIVE.items():
        logging.getLogger(name).setLevel(level)
    store = str(get_tracking_uri())
    with ExitStack() as opened:
        if store.startswith(_SQLITE):  # in one process at a time: its tables are created without a lock
            database = Path(store.removeprefix(_SQLITE).partition("?")[0])
            with suppress(OSError):  # a read-only folder gets no new store
                lock = opened.enter_context(open(database.with_name(f".{database.name}.lock"), "a"))
                fcntl.flock(lock, fcntl.LOCK_EX)
        return MlflowClient()


def _is_timeout(error: Exception) -> bool:
    return any(
        isinstance(cause, (HTTPTimeout, TimeoutError)) and not isinstance(cause, NewConnectionError)
        for cause in _causes(error)
    )


def _may_pass(error: Exception) -> bool:
    """Tell whether an error may be transient: a busy database or server, a broken connection."""
    if str(get_tracking_uri()).startswith("sqlite:"):
        return "is locked" in str(error)
    codes = {getattr(getattr(cause, "response", None), "status_code", None) for cause in _causes(error)}
    if isinstance(error, MlflowException):
        codes.add(error.get_http_status_code())
    return bool(codes & _PASSING) or _is_broken(error)


def _is_broken(error: Exception) -> bool:
    return any(isinstance(cause, HTTPError) for cause in _causes(error))


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and those it wraps; requests and urllib3 keep them as arguments and reasons."""
    seen: list[BaseException] = []
    left: list[object] = [error]
    while left:
        cause = left.pop()
        if isinstance(cause, BaseException) and cause not in seen:
            seen.append(cause)
            yield cause
            left += [cause.__cause__, cause.__context__, getattr(cause, "reason", None), *cause.args]
