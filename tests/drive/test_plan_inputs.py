from typing import Any

import pytest

from dpprof.config.drive import DriveConfig
from dpprof.config.entry_points import PlanConfig
from dpprof.drive.launch.launcher import make_launcher
from dpprof.drive.plan import experiments_to_plan
from dpprof.errors import ConfigError

MODEL = {"model_size": "tiny", "seq_len": "16", "target": "H100"}


def planned(**asked: str) -> tuple[list[str], dict[str, str]]:
    settings = {name: value for name, value in asked.items() if name != "trainers"}
    own: dict[str, Any] = {name: value for name, value in asked.items() if name == "trainers"}
    launcher = make_launcher(DriveConfig())
    found, left_out = experiments_to_plan(PlanConfig(**own), MODEL | settings, launcher)
    return [config.trainer for config in found.values()], left_out


@pytest.mark.usefixtures("limited")
def test_a_trainer_that_cannot_split_a_batch_or_that_a_setting_excludes_is_left_out() -> None:
    found, left_out = planned(trainers="all,limited")
    assert len(found) == 5
    assert "StandardTrainer" not in found
    assert list(left_out) == ["LimitedTrainer"]
    assert "1 with limited" in left_out["LimitedTrainer"]
    found, left_out = planned(trainers="limited,bk", precision="bf16")
    assert found == ["DPBookKeepingTrainer"]
    assert "fp32 with limited" in left_out["LimitedTrainer"]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"trainers": "limited"}, r"trainers: none of them can be planned \(limited: accumulation_steps"),
        ({"trainers": "standard"}, "trainers: got 'standard', allowed: at least one that trains with"),
        ({"trainers": "nobody"}, "trainers: got 'nobody'"),
        ({"parallel": "dpp"}, "parallel: got 'dpp', allowed: none, ddp, fsdp2"),
        ({"precision": "fp8"}, "precision: got 'fp8'"),
    ],
)
@pytest.mark.usefixtures("limited")
def test_what_cannot_be_planned_is_named(asked: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        planned(**asked)
