"""What is done to a sweep, and when: the rows of the matrix."""

import json
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
from driven import NAME, Driven, Missed
from example_runs import known
from faulty_proxy import ANSWERED, HELD, LASTING, RESUMED_STEPS, STEPS
from mlflow_server import MlflowServer

OPTIONS, RENDERING, COMPARING = "checking the options", "rendering a run", "rendering the comparison"
# Stages that show in the requests: the step, and what happens to its first request.
_SEEN_IN_REQUESTS = {
    "opening the parent": ("opening the parent", HELD),
    "logging metrics": ("logging metrics", HELD),
    "creating a child": ("creating a child", HELD),
    "logging to a store that hangs": ("logging metrics", "hanging"),
    "between cells": ("finishing a run", ANSWERED),
    "finishing the sweep": ("finishing the sweep", HELD),
}
DRIVER_STAGES = (OPTIONS, "clean pass", "trace pass", RENDERING, COMPARING, *_SEEN_IN_REQUESTS)
# Faults of the store, each at the stages where it takes a way of its own.
STORE_FAULTS = {
    "answer lost": (*STEPS, *RESUMED_STEPS),
    "down": ("opening the parent", "creating a child", "finishing the sweep", "reopening the parent"),
    "hanging": ("logging metrics",),
    "500": ("creating a child",),
    "507": ("uploading artifacts",),
    "killed": ("logging metrics",),
    "disk full": ("finishing a run",),
}
# Processor time after which a command reads its options and loads the packages for them.
_OPTIONS_S = 0.5
# How long a driver that was told to end needs to tell its frozen child.
_TELL_S = 0.5


@dataclass(frozen=True)
class Row:
    """A fault at a stage. `whom` is the driver, the child or the store."""

    whom: str
    fault: str
    stage: str

    @property
    def name(self) -> str:
        """What it is called among the tests."""
        return f"{self.fault} of the {self.whom}, {self.stage}"

    @property
    def is_signal(self) -> bool:
        """Whether it is a signal to a process."""
        return self.whom != "store"

    @property
    def lasts(self) -> bool:
        """Whether the store stays as it is until the sweep has ended."""
        return not self.is_signal and (self.fault in LASTING or self.fault == "disk full")

    @property
    def ends_orderly(self) -> bool:
        """Whether the driver can close its runs in MLflow before it ends."""
        hangs = "hangs" in self.stage
        return not (self.lasts or hangs or (self.whom == "driver" and self.fault == "SIGKILL"))


def all_rows() -> list[Row]:
    """The matrix: of signals and faults that take the same way, one.

    SIGTERM, SIGHUP and SIGQUIT go the way of SIGINT, a status of 503 that of 500.
    """
    rows = [Row("driver", fault, stage) for stage in DRIVER_STAGES for fault in ("SIGINT", "SIGKILL")]
    rows += [Row("child", "SIGKILL", stage) for stage in ("clean pass", "trace pass")]
    return rows + [Row("store", fault, stage) for fault, stages in STORE_FAULTS.items() for stage in stages]


def arm(row: Row, server: MlflowServer) -> None:
    """Prepare the proxy, before the sweep is started."""
    seen = (row.stage, row.fault) if not row.is_signal else _SEEN_IN_REQUESTS.get(row.stage)
    if seen is not None:
        server.proxy.arm(*seen, lasts=seen[1] in LASTING)


def disturb(row: Row, run: Driven, server: MlflowServer) -> None:
    """Wait for the stage and do it. Raises Missed."""
    if not row.is_signal:
        run.until(server.proxy.reached.is_set)
        return
    frozen = _caught(row, run, server)
    victim = known(frozen).pid if row.whom == "child" else run.process.pid
    os.kill(victim, signal.Signals[row.fault])
    if frozen is not None:
        if frozen.pid != victim:
            time.sleep(_TELL_S)
        with suppress(psutil.NoSuchProcess):
            frozen.resume()
    if "hangs" not in row.stage:
        time.sleep(0.1 if frozen is None else 0)
        server.proxy.let_go()


def _caught(row: Row, run: Driven, server: MlflowServer) -> psutil.Process | None:
    """The process that is frozen in the stage, if one is."""
    driver = psutil.Process(run.process.pid)
    if row.stage == OPTIONS:
        run.until(lambda: sum(driver.cpu_times()[:2]) > _OPTIONS_S)
        return None
    if row.stage in _SEEN_IN_REQUESTS:
        run.until(server.proxy.reached.is_set)
        return None
    if row.stage == RENDERING:
        return _freeze(run, lambda: driver, lambda: _is_rendered(run.cell(0)))
    if row.stage == COMPARING:
        return _freeze(run, lambda: driver, (run.folder / "runs" / NAME / "summary.md").exists)
    name = row.stage.removesuffix(" pass")
    return _freeze(run, run.child, lambda: passes(run.cell(1)).get(name) == "running")


def _freeze(
    run: Driven, find: Callable[[], psutil.Process | None], is_there: Callable[[], bool]
) -> psutil.Process:
    run.until(is_there)
    try:
        process = find()
        if process is None:
            raise Missed("its process had ended")
        process.suspend()
        while process.status() != psutil.STATUS_STOPPED:
            time.sleep(0.001)
        if not is_there():
            process.resume()
            raise Missed("it had gone on")
    except psutil.NoSuchProcess:
        raise Missed("its process had ended") from None
    return process


def passes(cell: Path) -> dict[str, str]:
    """How the passes of a run folder stand."""
    try:
        record = json.loads((cell / "record.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {name: outcome["status"] for name, outcome in record["passes"].items()}


def _is_rendered(cell: Path) -> bool:
    """Whether the first of its reports is there, and it is not being logged yet."""
    return (cell / "memory_timeline.html").exists() and not (cell / "mlflow.json").exists()
