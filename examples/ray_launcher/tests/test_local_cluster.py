"""A Ray cluster that dpprof started, whose node is killed: Ray would end dpprof without a word."""

import os
from contextlib import suppress
from pathlib import Path

import psutil
import ray_launcher
from conftest import environment, runs_of
from started import with_pipes

from dpprof.drive.launch.job import MEASURE

NAME = "StandardTrainer_unlucky_bs7_seq1"
GRID = ["--workload", "example_workloads:unlucky", "--trainers", "standard", "--seq-lens", "1"]
GRID += ["--batch-sizes", "7,4", "--sweep-name", "lost", "--passes", "clean", "--warmup-steps", "2"]
WORDS = "the process of the Ray node that dpprof had started was killed"


def test_a_sweep_whose_node_is_killed_says_so_and_can_go_on(tmp_path: Path) -> None:
    ends = MEASURE.rpartition("/dpprof/")[2]

    def measures() -> bool:
        with suppress(psutil.Error):  # a process has just ended
            words = [word for one in psutil.Process().children(recursive=True) for word in one.cmdline()]
            return config.exists() and any(word.endswith(ends) for word in words)
        return False

    config = tmp_path / "runs" / "lost" / NAME / "config.json"
    arguments = [*GRID, "--measured-steps", "2", "--launcher", "ray", "--ray-address", "local"]
    found_by = os.pathsep.join(
        [environment(tmp_path)["PYTHONPATH"], str(Path(ray_launcher.__file__).parents[1])]
    )
    process = with_pipes(tmp_path, ["sweep", *arguments], measures, PYTHONPATH=found_by)
    (node,) = [one for one in psutil.Process(process.pid).children() if one.name() == "raylet"]
    node.kill()
    output, errors = process.communicate(timeout=60)
    assert WORDS in output
    assert process.returncode == 130, errors
    assert "stopped; 0 of 2 experiments are finished" in errors
    assert "sweep_name=lost resume=true" in errors
    runs = runs_of(tmp_path)
    assert {name: run.info.status for name, run in runs.items()} == {"lost": "KILLED", NAME: "KILLED"}
