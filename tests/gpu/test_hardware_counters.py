"""Hardware counters on a real GPU: `pytest tests/gpu`. Needs Nsight Compute and the permission to count."""

import dataclasses
from pathlib import Path

import pytest
import torch
from example_config import changed, experiment
from example_runs import known
from record_metrics import metrics

from dpprof.config.counter_metrics import BASIC, DRAM_READ, DRAM_WRITTEN
from dpprof.drive.jobs import Runner
from dpprof.drive.launch.local import LocalLauncher
from dpprof.drive.ncu import program
from dpprof.drive.run import drive_experiment
from dpprof.errors import CountersUnavailable
from dpprof.record.counters import total
from dpprof.record.figures.results import FINISHED, Result
from dpprof.record.folder import RunFolder
from dpprof.vocabulary.trainers import DEFAULT_TRAINERS


def _lacking() -> str:
    """What this machine lacks to count, if anything."""
    if not torch.cuda.is_available():
        return "torch finds no CUDA device on this machine"
    try:
        program.require("cuda").available_metrics()
    except CountersUnavailable as lacking:
        return str(lacking)
    return ""


pytestmark = [
    pytest.mark.alone,
    pytest.mark.gpu,
    pytest.mark.skipif(bool(_lacking()), reason=_lacking() or "can count"),
]
CONFIG = experiment(
    device="cuda",
    model_size="tiny",
    batch_size=4,
    seq_len=256,
    passes="clean,ledger,trace,ceilings",
    counters="ncu",
)


@pytest.fixture(scope="module", params=DEFAULT_TRAINERS)
def result(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Result:
    config = dataclasses.replace(CONFIG, trainer=request.param).resolve(cuda_available=True)
    folder = RunFolder(tmp_path_factory.mktemp("counted") / config.run_name)
    return drive_experiment(config, folder, Runner(LocalLauncher(), 900, print))


def test_the_step_is_counted(result: Result) -> None:
    assert result.status == FINISHED, result.failure
    counters = known(known(result.record).counters)
    assert counters.missing == {}
    assert all(set(row.values) == set(BASIC[1:]) for row in counters.rows)


def test_every_phase_has_its_kernels(result: Result) -> None:
    """The backward pass too, which autograd runs in a thread of its own."""
    record = known(result.record)
    counted = {row.phase for row in known(record.counters).rows}
    launched = {row.phase for row in record.operators if row.device_self_s}
    assert launched - {None} <= counted
    assert any(phase.startswith("backward") for phase in counted if phase)


def test_the_phases_make_up_the_step(result: Result) -> None:
    rows = known(known(result.record).counters).rows
    whole = total("step", "", None, rows)
    in_phases = total("phases", "", None, (row for row in rows if row.phase is not None))
    assert in_phases.seconds == pytest.approx(whole.seconds, rel=0.01)
    for metric in (DRAM_READ, DRAM_WRITTEN):
        assert in_phases.values[metric] == pytest.approx(whole.values[metric], rel=0.01)


def test_the_kernels_take_about_as_long_as_in_the_trace(result: Result) -> None:
    """None is lost. Alone and at the clocks of the moment they need not take exactly as long."""
    record = known(result.record)
    counted = sum(row.seconds for row in known(record.counters).rows)
    traced = sum(row.device_self_s or 0.0 for row in record.operators) / (record.traced_steps or 1)
    assert 0.5 < counted / traced < 2


def test_no_more_than_the_ceilings(result: Result) -> None:
    """No phase moves its bytes much faster than a large copy does; reading alone may be somewhat faster."""
    record = known(result.record)
    figures = metrics(record)
    for phase in {row.phase for row in known(record.counters).rows if row.phase}:
        moved = sum(figures[f"counters/{phase}/dram_{way}_gib_per_s"] for way in ("read", "written"))
        assert moved < 1.25 * figures["ceilings/copy_gib_per_s"]


def test_nvprofs_names_and_the_full_set(tmp_path: Path) -> None:
    config = changed(CONFIG, passes="clean", counter_metrics="full,dram_utilization,gld_throughput")
    result = drive_experiment(
        config.resolve(cuda_available=True), RunFolder(tmp_path / "full"), Runner(LocalLauncher(), 900, print)
    )
    assert result.status == FINISHED, result.failure
    assert result.metrics["counters/dram_pct_of_peak"] > 0
