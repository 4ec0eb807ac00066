"""Estimates are made again where their code may have changed."""

import json
from pathlib import Path

import pytest
from conftest import fine, measure_here

from dpprof.drive.run import earlier_result
from dpprof.record.folder import RunFolder, SweepFolder

MODEL = """
import torch
from torch import nn

def factory(config):
    def batches():
        while True:
            yield torch.randn(config.batch_size, 4), torch.randn(config.batch_size, 1)

    def loss(outputs, targets):
        return (outputs - targets).square().sum(dim=1)

    return nn.Linear(4, 1), batches(), loss
"""


def estimated(place: Path, *more: str) -> RunFolder:
    grid = ("--trainers", "bk", "--batch-sizes", "2", "--seq-lens", "8", "--device", "cpu")
    fine(measure_here(place, "estimate", *grid, *more))
    (config,) = place.glob("runs/*/*/config.json")
    return RunFolder(config.parent)


def is_taken(folder: RunFolder, campaign: str = "another") -> bool:
    """Whether a campaign beside it, or its own, takes the estimate."""
    own = SweepFolder(folder.path.parent.parent / campaign)
    return earlier_result(own, folder.name, folder.read_config()) is not None


def test_an_estimate_is_taken_unless_versions_or_the_processor_differ(tmp_path: Path) -> None:
    folder = estimated(tmp_path, "--model-sizes", "tiny")
    assert is_taken(folder)
    record = json.loads(folder.record.read_text())
    for name in ("cpu", "cpu_cores", "opacus_version", "transformers_version", "dpprof_version"):
        changed = record | {"environment": record["environment"] | {name: "0.1"}}
        folder.record.write_text(json.dumps(changed))
        assert not is_taken(folder), name


def test_a_model_of_ones_own_is_estimated_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ownmodel.py").write_text(MODEL)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    folder = estimated(tmp_path, "--workload", "ownmodel:factory")
    assert not is_taken(folder)
    assert is_taken(folder, folder.path.parent.name), "within a campaign it is the same"
