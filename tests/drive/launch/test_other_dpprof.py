"""Experiments started where the working directory holds something else named dpprof."""

import os
from pathlib import Path

import pytest
from conftest import ROOT, environment, fine, lay_out_store, run_python

MINE = "from example_workloads import mlp"
OTHER = "raise RuntimeError('another package')"
PROFILE = ["profile", "--workload", "mine:mlp", "--trainer", "standard", "--batch-size", "2", "--seq-len"]
PROFILE += ["1", "--device", "cpu", "--passes", "clean", "--measured-steps", "1", "--warmup-steps", "1"]
ESTIMATE = ["estimate", "--workload", "mine:mlp", "--trainers", "standard", "--batch-sizes", "2"]
ESTIMATE += ["--seq-lens", "1", "--target", "T4", "--workers", "1"]


@pytest.mark.parametrize(
    ("arguments", "package"), [(PROFILE, OTHER), (ESTIMATE, None)], ids=["local", "folder"]
)
def test_an_experiment_runs_with_the_dpprof_that_was_started(
    tmp_path: Path, arguments: list[str], package: str | None
) -> None:
    """A folder without a package, as above a clone, hides one that an installation finds by a hook."""
    (tmp_path / "dpprof").mkdir()
    paths = [str(ROOT / "tests")]
    if package is not None:
        (tmp_path / "dpprof" / "__init__.py").write_text(package)
        paths.append(str(ROOT))
    (tmp_path / "mine.py").write_text(MINE)
    lay_out_store(tmp_path)
    env = environment(tmp_path) | {"PYTHONPATH": os.pathsep.join(paths)}
    fine(run_python(tmp_path, env, "-P", "-m", "dpprof", *arguments))
