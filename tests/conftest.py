"""What tests share: a folder with an MLflow store of its own, and dpprof's commands as a user runs them."""

import gc
import io
import os
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

# One thread a process, measured ones among them: several on as many cores mostly wait for each other
# where operators are as small as here. Read when torch is loaded.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import click
import hypothesis
import numpy as np
import pytest
import torch
from click.testing import CliRunner
from example_limits import LIMITED
from example_ncu import StandIn
from filelock import FileLock
from forked import fork
from turns import turn

from dpprof.errors import ConfigError
from dpprof.vocabulary.trainer_info import TrainerInfo
from dpprof.vocabulary.trainers import TRAINER_NAMES, TRAINERS

# No test depends on speed.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")

ROOT = Path(__file__).parent.parent
# The path that makes dpprof and the tests importable in other processes.
TESTED = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
Ended = subprocess.CompletedProcess[str]
Run = Callable[..., Ended]
LONGEST = {
    "test_advise_cli",
    "test_browser",
    "test_estimate",
    "test_foreign_trainer",
    "test_launchers",
    "test_plan_cli",
    "test_faults",
    "test_poisson_runs",
    "test_opacus_ways",
    "test_failing_ranks",
    "test_verify_ranks",
    "test_ranks",
    "test_gloo",
    "test_counters",
    "test_slurm",
    "test_odd_experiments",
    "test_sweep_stopped",
}
# Functions of tests that may start a process that imports torch.
MOST_STARTING = 60
# Modules that a test imports before it pays to freeze what they made.
MANY_MODULES = 100
SCREENSHOTS = Path(__file__).parent / "screenshots"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # Started in the background of a shell: processes of the tests would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # started by nohup


@pytest.fixture
def limited(monkeypatch: pytest.MonkeyPatch) -> TrainerInfo:
    """A trainer of another package, in the tables."""
    monkeypatch.setitem(TRAINERS, LIMITED.name, LIMITED)
    for name in (LIMITED.name, LIMITED.short_name):
        monkeypatch.setitem(TRAINER_NAMES, name, LIMITED.name)
    return LIMITED


def seed_all(seed: int) -> None:
    """Seed the generators that tests draw from without one of their own."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Draw the same numbers in each test, whatever ran before it. With several workers, take turns."""
    seed_all(0)
    if not hasattr(item.config, "workerinput"):
        return (yield)
    with turn(shared_by_workers(item.config), alone=item.get_closest_marker("alone") is not None):
        return (yield)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Files whose few tests take long come first, so that no worker waits at the end for another's."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: item.path.stem not in LONGEST)


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Have processes that tests start write down that they import torch (`sitecustomize.py`)."""
    if not hasattr(config, "workerinput"):
        os.environ["DPPROF_TEST_STARTS"] = str(shared_by_workers(config) / "starts")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail if too many functions of tests start a process that imports torch, which takes seconds."""
    told = Path(os.environ["DPPROF_TEST_STARTS"])
    if hasattr(session.config, "workerinput") or not told.exists():
        return
    starts = Counter(line.partition("[")[0].partition(" ")[0] for line in told.read_text().splitlines())
    print(f"\n{len(starts)} functions started {starts.total()} processes that imported torch")
    if len(starts) > MOST_STARTING:
        for function, count in starts.most_common():
            print(f"{count:4} {function}")
        print(f"They are more than {MOST_STARTING}: use forked.py, or call_dpprof")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


class Frozen:
    """When objects were last frozen: by how many modules, in which file of tests."""

    modules, file = 0, ""


def pytest_runtest_logstart(nodeid: str) -> None:
    """Freeze what earlier files left alive: experiments collect garbage, which takes long with all of it."""
    file = nodeid.partition("::")[0]
    if file != Frozen.file or len(sys.modules) > Frozen.modules + MANY_MODULES:
        gc.collect()
        gc.freeze()
        Frozen.modules, Frozen.file = len(sys.modules), file


def shared_by_workers(config: pytest.Config) -> Path:
    """A folder of this test run's that all its workers see."""
    factory: pytest.TempPathFactory = config._tmp_path_factory  # type: ignore[attr-defined]
    base = factory.getbasetemp()
    return base.parent if hasattr(config, "workerinput") else base


def environment(folder: Path) -> dict[str, str]:
    """A clean MLflow environment whose store lies in the folder, with the tests importable as workloads."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MLFLOW_")}
    return kept | {
        "MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "PYTHONPATH": TESTED,
        "COLUMNS": "120",
    }


@cache
def empty_store() -> bytes:
    """An SQLite store with MLflow's tables, which take more than a second to make, and nothing in them."""
    from mlflow.store.db.utils import _initialize_tables, create_sqlalchemy_engine

    with TemporaryDirectory() as folder:
        path = Path(folder, "mlflow.db")
        engine = create_sqlalchemy_engine(f"sqlite:///{path}")
        _initialize_tables(engine)
        engine.dispose()
        return path.read_bytes()


def lay_out_store(folder: Path) -> None:
    """Give the folder an empty store if it has none."""
    path = folder / "mlflow.db"
    if not path.exists():
        path.write_bytes(empty_store())


def run_python(folder: Path, env: dict[str, str], *arguments: str) -> Ended:
    """`python ARGUMENTS` in the folder, in a process of its own that starts from nothing."""
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


def run_dpprof(folder: Path, *arguments: str, **more: str) -> Ended:
    """`python -m dpprof ARGUMENTS` in the folder; further environment variables as keywords.

    In a fork of a process that has imported torch and dpprof; in one of its own with other packages to find,
    which dpprof looks for when it is imported.
    """
    command, env = ["-m", "dpprof", *arguments], environment(folder) | more
    if "PYTHONPATH" not in more:
        return fork(*command, cwd=folder, env=env)
    return run_python(folder, env, *command)


def call_dpprof(folder: Path, *arguments: str, **more: str) -> Ended:
    """The same in this process, which saves its start: for commands that measure nothing."""
    from mlflow.tracking._tracking_service import utils

    from dpprof.cli.main import main
    from dpprof.process import stopping_signals

    handlers = {number: signal.getsignal(number) for number in stopping_signals()}
    output, errors = io.StringIO(), io.StringIO()
    code: Any = 0
    with (
        pytest.MonkeyPatch.context() as patch,
        mock.patch.dict(os.environ, environment(folder) | more, clear=True),
        redirect_stdout(output),
        redirect_stderr(errors),
    ):
        patch.setattr(utils, "_tracking_uri", None)
        patch.setattr(sys, "argv", ["dpprof", *arguments])
        patch.chdir(folder)
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
    return subprocess.CompletedProcess(arguments, code, output.getvalue(), errors.getvalue())


def refusal(call: Callable[..., object], *arguments: Any, **more: Any) -> str:
    """What is said where a call raises ConfigError."""
    with pytest.raises(ConfigError) as refused:
        call(*arguments, **more)
    return str(refused.value)


def printed(command: click.Command, *arguments: object) -> str:
    """What a command prints, of which the errors are raised."""
    ended = CliRunner().invoke(command, list(map(str, arguments)), catch_exceptions=False)
    assert ended.exit_code == 0
    return ended.stdout


def measure_here(folder: Path, *arguments: str) -> Ended:
    """The same with experiments that run in this process too: for what a launcher does not matter to.

    Give estimates `--workers 1`.
    """
    from dpprof.vocabulary.launchers import LAUNCHERS

    lay_out_store(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(LAUNCHERS, "local", LAUNCHERS["in_process"])
        return call_dpprof(folder, *arguments)


def fine(ended: Ended) -> Ended:
    """What a command gave, which must have ended well."""
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended


def errors_of(ended: Ended, code: int = 2) -> str:
    """What a command wrote to standard error, which must have ended with this code."""
    assert ended.returncode == code, ended.stdout + ended.stderr
    return ended.stderr


@pytest.fixture
def dpprof(tmp_path: Path) -> Run:
    """Runs dpprof in the test's own folder, in a process of its own, which need not import torch."""
    return lambda *arguments, **more: run_dpprof(tmp_path, *arguments, **more)


@pytest.fixture
def called(tmp_path: Path) -> Run:
    """Runs dpprof in the test's own folder, in this process."""
    return lambda *arguments, **more: call_dpprof(tmp_path, *arguments, **more)


@pytest.fixture
def mlflow_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Points this process's MLflow, and its working directory, at the test's own folder."""
    import mlflow

    for name in [name for name in os.environ if name.startswith("MLFLOW_") and "TELEMETRY" not in name]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    lay_out_store(tmp_path)
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/mlflow.db")
    yield tmp_path
    mlflow.set_tracking_uri(None)  # type: ignore[arg-type]


def runs_of(folder: Path) -> dict[str, Any]:
    """All runs of the folder's store by full name (`mlflow.entities.Run`)."""
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
    found = client.search_runs([experiment.experiment_id for experiment in client.search_experiments()])
    return {run.data.tags.get("dpprof.run", run.info.run_name): run for run in found}


TRAINERS_SWEPT = ("--trainers", "flat,ghost,fast,standard")
SWEEP = ("--model-sizes", "tiny", *TRAINERS_SWEPT, "--batch-sizes", "2", "--seq-lens", "16")


def artifacts_of(folder: Path, run: Any, path: str | None = None) -> set[str]:
    """The paths of a run's artifacts in the folder's store, at the top or in a folder of them."""
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
    return {item.path for item in client.list_artifacts(run.info.run_id, path)}


@pytest.fixture(scope="session")
def swept(request: pytest.FixtureRequest) -> Path:
    """A folder with a finished sweep, `grid é`: all trainers on a very small transformer.

    It is the one that `scripts/test_run.sh` made, else one that the workers share. Tests leave it as it is.
    """
    given = os.environ.get("DPPROF_TEST_SWEEP")
    folder = Path(given) if given else shared_by_workers(request.config) / "swept"
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            folder.mkdir()
            lay_out_store(folder)
            fine(run_dpprof(folder, "sweep", *SWEEP, "--measured-steps", "3", "--sweep-name", "grid é"))
    assert (folder / "runs" / "grid é" / "summary.json").exists(), (
        "the sweep that tests read was not finished"
    )
    return folder


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        reason = "no Chromium on this machine (Debian: apt-get install chromium)"
        if os.environ.get("DPPROF_REQUIRE_BROWSER"):
            pytest.fail(reason)
        pytest.skip(reason)
    from make_screenshots import started_browser

    SCREENSHOTS.mkdir(exist_ok=True)
    with started_browser() as launched:
        yield launched


@pytest.fixture
def page(browser: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    opened = browser.new_page(viewport={"width": 1400, "height": 900})
    opened.set_default_timeout(90_000)
    yield opened
    opened.screenshot(path=SCREENSHOTS / f"{request.node.name}.png")
    opened.close()


@pytest.fixture
def stand_in(tmp_path: Path) -> StandIn:
    """A folder with a program that stands in for `ncu`."""
    return StandIn(tmp_path / "bin")
