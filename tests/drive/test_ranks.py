"""Experiments of several real ranks: what each leaves, and what is made of it."""

import os
import statistics
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest
from conftest import TESTED, fine, lay_out_store, run_dpprof, run_python, runs_of
from example_config import changed, experiment
from example_runs import known

from dpprof.drive.jobs import Runner
from dpprof.drive.launch.local import LocalLauncher
from dpprof.drive.run import drive_experiment
from dpprof.errors import ExperimentsFailed
from dpprof.measure.entry import measure
from dpprof.record.figures.names import metrics, named
from dpprof.record.figures.results import FINISHED, Result
from dpprof.record.folder import RunFolder
from dpprof.record.record import Record
from dpprof.vocabulary.parallel import DDP, FSDP2

CONFIG = experiment(
    trainer="DPGhostClippingTrainer",
    model_size="tiny",
    vocab_size=64,
    batch_size=2,
    seq_len=16,
    device="cpu",
    parallel=FSDP2,
    world_size=2,
    measured_steps=4,
    passes="clean,alone,memory,ledger,trace,gradient_check",
).resolve(cuda_available=False)


@cache
def measured() -> Result:
    """An experiment of two ranks."""
    folder = RunFolder(Path(mkdtemp()) / "run")
    lines: list[str] = []
    result = drive_experiment(CONFIG, folder, Runner(LocalLauncher(), 300, lines.append))
    assert lines.count("clean pass") == 1  # of rank 0 alone
    return result


def record_of(rank: int) -> Record:
    return known(measured().folder.rank(rank).read_record())


def test_every_rank_leaves_a_record_of_its_own() -> None:
    result = measured()
    assert result.status == FINISHED
    for rank in range(2):
        record = record_of(rank)
        assert not record.failed_passes
        assert list(record.passes) == CONFIG.pass_names
        assert [one.rank for one in record.ranks] == [0, 1]
        assert record.environment["ranks_here"] == "2"
        assert result.folder.rank(rank).log.exists()
        assert not result.folder.rank(rank).stacks.exists()


def test_times_are_the_slowest_ranks_and_samples_those_of_all() -> None:
    record = record_of(0)
    medians = [statistics.median(rank.step_s) for rank in record.ranks]
    assert statistics.median(record.step_s) == max(medians)
    slowest = record.ranks[medians.index(max(medians))]
    assert record.phase_s == slowest.phase_s
    assert record.samples_per_step == 4
    assert record_of(1).step_s == record.ranks[1].step_s


def test_figures_of_ranks_follow_from_what_they_measured() -> None:
    record = record_of(0)
    found = metrics(named(record, known(measured().figures)))
    step = [1e3 * statistics.median(rank.step_s) for rank in record.ranks]
    alone = [1e3 * statistics.median(rank.alone_step_s) for rank in record.ranks]
    slowest = step.index(max(step))
    assert found["ranks/slowest"] == slowest
    assert found["communication/exposed_ms"] == pytest.approx(step[slowest] - alone[slowest])
    assert found["communication/exposed_pct"] == pytest.approx(100 * (1 - alone[slowest] / step[slowest]))
    assert found["throughput/samples_per_s"] == pytest.approx(4e3 / step[slowest])
    peaks = [rank.peak for rank in record.ranks]
    assert found["ranks/largest_peak_mib"] == max(peak for peak in peaks if peak) / 2**20


def test_the_ledger_is_the_allocators_to_the_byte() -> None:
    for record in (record_of(0), record_of(1)):
        assert known(record.ledger).peak == record.memory.peak_allocated


def test_the_gradient_is_that_of_one_process_on_the_whole_batch() -> None:
    check = known(record_of(0).gradient_check)
    assert known(check.relative_error_float64) < 1e-10
    assert record_of(1).gradient_check == check


def test_torchrun_starts_the_same_ranks(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.create(changed(CONFIG, passes="clean", parallel=DDP, measured_steps=1))
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    env = os.environ | {"PYTHONPATH": TESTED, "GLOO_SOCKET_IFNAME": "lo"}
    fine(run_python(tmp_path, env, *torchrun, "-m", "dpprof.measure", str(folder.path)))
    assert all(known(folder.rank(rank).read_record()).headline_finished for rank in range(2))


def test_a_process_that_is_no_rank_says_how_to_start_them(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.create(CONFIG)
    assert measure(folder) == 1
    failure = known(folder.read_error())
    said = "ConfigError: world_size: the experiment has 2 ranks, none were started"
    assert failure.message.startswith(said)
    assert "torchrun --nproc-per-node=2" in failure.message


def test_a_sweep_of_ranks_goes_on_after_one_was_killed(tmp_path: Path) -> None:
    """Only ghost clips; standard has no such phase."""
    lay_out_store(tmp_path)
    grid = ["--trainers", "standard,ghost", "--batch-sizes", "2", "--seq-lens", "1", "--device", "cpu"]
    ranks = ["--parallel", "ddp", "--world-size", "2", "--passes", "clean", "--measured-steps", "1"]
    options = "how=kill,phase=clip,rank=1"
    workload = ["--workload", "example_failing_ranks:fails", "--workload-options", options]
    ended = run_dpprof(tmp_path, "sweep", *grid, *ranks, *workload, "--sweep-name", "s")
    assert ended.returncode == ExperimentsFailed.exit_code
    assert "rank 1: ended by SIGKILL" in ended.stdout + ended.stderr
    runs = runs_of(tmp_path)
    status = {name.partition("_")[0]: run.info.status for name, run in runs.items() if name != "s"}
    assert status == {"StandardTrainer": "FINISHED", "DPGhostClippingTrainer": "FAILED"}
    (standard,) = (run for name, run in runs.items() if name.startswith("Standard"))
    assert standard.data.params["world_size"] == "2"
    assert standard.data.params["parallel"] == "ddp"
    assert standard.data.metrics["ranks/slowest"] in (0, 1)
