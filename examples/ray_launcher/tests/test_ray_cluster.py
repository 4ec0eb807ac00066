"""A Ray cluster of two nodes: what runs where, and what becomes of it when nodes and processes are lost."""

import dataclasses
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
import ray
from conftest import ROOT, Ended, call_dpprof, lay_out_store, runs_of
from example_config import experiment
from example_jobs import end_of, job, ran
from example_runs import known
from ray_launcher import RayOptions
from ray_launcher.launcher import RayLauncher
from ray_launcher.placement import NoNodes, nodes
from ray_nodes import Cluster, wait_for

from dpprof.drive.jobs import Runner
from dpprof.drive.launch.job import Job
from dpprof.drive.run import drive_experiment
from dpprof.record.figures.results import Result
from dpprof.record.folder import RunFolder

MEASURES = "dpprof/measure/__main__.py"
FEW = ["--device", "cpu", "--passes", "clean", "--measured-steps", "1", "--warmup-steps", "1"]
TOLD = "import os; print(*(os.environ.get(n) for n in ('RANK', 'LOCAL_RANK', 'CUDA_VISIBLE_DEVICES')))"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A head with three GPUs, as it says, and a node with one."""
    made = Cluster("--num-cpus=2", "--num-gpus=3")
    try:
        made.add("--num-cpus=2", "--num-gpus=1")
        RayLauncher(RayOptions(made.address))
        made.wait_until_up()
        yield made
    finally:
        ray.shutdown()
        made.stop()


@pytest.fixture
def launcher(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> RayLauncher:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(ROOT / "tests")]))
    return RayLauncher(RayOptions(cluster.address))


def lines_of(launcher: RayLauncher, asked: Job) -> list[str]:
    ended, lines = ran(launcher, asked)
    assert ended.code == 0
    return lines


def driven(
    launcher: RayLauncher, place: Path, on_line: Callable[[str], None] = print, measured_steps: int = 1
) -> Result:
    config = experiment(
        workload="example_workloads:mlp",
        device="cpu",
        batch_size=2,
        seq_len=1,
        passes="clean",
        measured_steps=measured_steps,
    ).resolve(cuda_available=False)
    return drive_experiment(config, RunFolder(place / "run"), Runner(launcher, 120, on_line))


def commanded(cluster: Cluster, place: Path, *arguments: str) -> Ended:
    lay_out_store(place)
    where = ["--launcher", "ray", "--ray-address", cluster.address]
    return call_dpprof(place, arguments[0], *where, *arguments[1:], *FEW)


def test_nodes_get_this_dpprof_and_the_workloads_modules(launcher: RayLauncher, tmp_path: Path) -> None:
    program = "import dpprof, example_workloads as e; print(dpprof.__file__); print(e.__file__)"
    dpprofs, workloads = lines_of(launcher, job(tmp_path, program, workload="example_workloads:mlp"))
    assert "py_modules" in dpprofs, "sent, whatever is installed on the node"
    assert not workloads.startswith(str(ROOT))


def test_torch_has_the_threads_and_the_priority_that_it_has_without_ray(
    launcher: RayLauncher, tmp_path: Path
) -> None:
    program = "import os; print(os.environ.get('OMP_NUM_THREADS'), os.nice(0))"
    threads = os.environ.get("OMP_NUM_THREADS")
    priority = 0 if os.getuid() == 0 else 15  # which nobody else may raise
    assert lines_of(launcher, job(tmp_path, program)) == [f"{threads} {priority}"]


def test_how_many_run_at_a_time(launcher: RayLauncher, tmp_path: Path) -> None:
    counts = [
        launcher.slots_for(Job(RunFolder(tmp_path), [], tmp_path / "log", 1, **needs))
        for needs in (
            {},
            {"num_ranks": 2},
            {"num_gpus": 1},
            {"num_ranks": 2, "num_gpus": 2},
            {"is_measured": False},
        )
    ]
    assert counts == [2, 1, 4, 2, 4]


def test_gpus_are_a_jobs_own(launcher: RayLauncher, tmp_path: Path) -> None:
    """Two on one node, and one that sees none."""
    for name, num_gpus in (("two", 2), ("none", 0)):
        (line,) = lines_of(launcher, job(tmp_path / name, TOLD, num_gpus=num_gpus))
        visible = line.split()[2:]
        assert [len(one.split(",")) for one in visible] == ([2] if num_gpus else [])


def test_ranks_stay_on_one_node_that_has_the_gpus_and_else_go_to_several(
    launcher: RayLauncher, tmp_path: Path
) -> None:
    for num_ranks, local_ranks in ((3, "012"), (4, "0012")):
        asked = job(tmp_path / str(num_ranks), TOLD, num_ranks=num_ranks, num_gpus=num_ranks)
        told = [line.split() for line in lines_of(launcher, asked)]
        assert sorted(rank for rank, *_ in told) == [str(rank) for rank in range(num_ranks)]
        assert "".join(sorted(local for _, local, *_ in told)) == local_ranks
        for rank in range(1, num_ranks):
            assert asked.folder.rank(rank).log.exists()
    with pytest.raises(NoNodes, match="it needs 5 GPUs, and the Ray cluster has 4"):
        launcher.submit(job(tmp_path, TOLD, num_gpus=5), print)


def test_a_rank_that_fails_ends_those_on_other_nodes(launcher: RayLauncher, tmp_path: Path) -> None:
    program = "import os, sys, time; time.sleep(100 * (os.environ['RANK'] == '0')); sys.exit(3)"
    ended, _ = ran(launcher, job(tmp_path, program, num_ranks=2))
    assert [(rank.code, rank.followed) for rank in ended.ranks] == [(-15, True), (3, False)]
    assert ended.environment.keys() == {"node", "tries"}


def test_what_waits_for_a_node_can_be_cancelled(launcher: RayLauncher, tmp_path: Path) -> None:
    jobs = [job(tmp_path / name, "import time; time.sleep(100)") for name in ("a", "b", "waits")]
    handles = [launcher.submit(one, print) for one in jobs]
    assert handles[2].poll() is None
    for handle in reversed(handles):
        handle.cancel()
    assert all(end_of(handle).interrupted for handle in handles)


def test_a_node_that_cannot_begin_says_why(launcher: RayLauncher, tmp_path: Path) -> None:
    asked = dataclasses.replace(job(tmp_path, ""), command=["no-such-program"])
    ended, _ = ran(launcher, asked)
    assert ended.said.startswith("Ray could not run it on 127.0.0.")
    assert "FileNotFoundError: [Errno 2] No such file or directory: 'no-such-program'" in ended.said


def test_ranks_on_both_nodes_are_measured(cluster: Cluster, tmp_path: Path) -> None:
    sizes = ["--model-size", "tiny", "--batch-size", "2", "--seq-len", "8"]
    ended = commanded(cluster, tmp_path, "profile", *sizes, "--parallel", "ddp", "--world-size", "2")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    (run,) = runs_of(tmp_path).values()
    assert run.info.status == "FINISHED"
    assert sorted(run.data.params["node"].split(", ")) == ["127.0.0.2", "127.0.0.3"]
    (path,) = (tmp_path / "runs").glob("*/*/record.json")
    folder = RunFolder(path.parent)
    assert [len(rank.step_s) for rank in known(folder.read_record()).ranks] == [1, 1]
    assert folder.rank(1).read_record() is not None
    assert all(one.log.read_text() for one in (folder, folder.rank(1)))


def test_ranks_on_both_nodes_end_when_their_time_is_over(launcher: RayLauncher, tmp_path: Path) -> None:
    program = "import time; print('here', flush=True); time.sleep(100)"
    late = dataclasses.replace(job(tmp_path, program, num_ranks=2), timeout_s=2)
    ended, lines = ran(launcher, late)
    assert (ended.timed_out, ended.interrupted, lines) == (True, False, ["here"] * 2)
    assert [rank.code for rank in ended.ranks] == [-15] * 2


def test_a_measuring_process_whose_worker_is_killed_goes_with_it(
    cluster: Cluster, launcher: RayLauncher, tmp_path: Path
) -> None:
    killed: list[psutil.Process] = []

    def kill(line: str) -> None:
        killed.append(wait_for(MEASURES, *cluster.nodes))
        worker = known(killed[0].parent())
        worker.kill()

    result = driven(launcher, tmp_path, on_line=kill, measured_steps=20_000)
    assert (known(result.failure).kind, known(result.failure).message) == (
        "killed",
        "Ray's worker was killed, and the processes with it",
    )
    assert psutil.wait_procs(killed, timeout=10)[1] == []


def test_experiments_of_which_one_loses_its_node(cluster: Cluster, tmp_path: Path) -> None:
    node = cluster.nodes[1]

    def lose() -> None:
        wait_for(MEASURES, node)
        node.lose()

    grid = ["--model-sizes", "tiny", "--trainers", "standard,bk", "--batch-sizes", "2", "--seq-lens", "8"]
    with ThreadPoolExecutor() as meanwhile:
        losing = meanwhile.submit(lose)
        ended = commanded(cluster, tmp_path, "sweep", *grid, "--sweep-name", "s")
    losing.result()
    assert ended.returncode == 0, ended.stdout + ended.stderr
    runs = runs_of(tmp_path)
    assert runs.pop("s").info.status == "FINISHED"
    assert len(runs) == 2
    for name, run in runs.items():
        assert run.info.status == "FINISHED"
        folder = RunFolder(tmp_path / "runs" / "s" / name)
        record = known(folder.read_record())
        assert record.headline_finished
        assert record.environment["node"] == run.data.params["node"]
        assert "finished: " in folder.log.read_text()
    params = [run.data.params for run in runs.values()]
    assert [one["tries"] for one in params].count("2") == 1
    (again,) = [name for name, run in runs.items() if run.data.params["tries"] == "2"]
    assert runs[again].data.params["node"] == "127.0.0.2"
    assert runs[again].data.params["lost"] == "127.0.0.3 was lost"
    log = RunFolder(tmp_path / "runs" / "s" / again).log.read_text()
    assert log.startswith("[dpprof] 127.0.0.3 was lost;")


def test_what_rays_memory_monitor_ends_is_out_of_memory(
    cluster: Cluster, launcher: RayLauncher, tmp_path: Path
) -> None:
    """On a node whose memory is said to be full at one percent, while the others are taken."""
    places = [tmp_path / str(number) for number in range(len(nodes()))]
    elsewhere = [launcher.submit(job(place, "import time; time.sleep(100)"), print) for place in places]
    cluster.add("--num-cpus=2", RAY_memory_usage_threshold="0.01", RAY_memory_monitor_refresh_ms="100")
    cluster.wait_until_up()
    result = driven(launcher, tmp_path)
    for handle in elsewhere:
        handle.cancel()
        end_of(handle)
    assert known(result.failure).kind == "oom"
    assert known(result.failure).message.startswith("Ray's memory monitor ended it: OutOfMemoryError: ")
