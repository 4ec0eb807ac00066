"""What an advice begins with: the experiment, and the changes that it allows."""

from collections.abc import Mapping

from dpprof.config.advice import ADVICE_DEFAULTS, AdviceConfig
from dpprof.config.changes import Change, possible_changes
from dpprof.config.estimating import EstimatingConfig
from dpprof.config.experiment import ExperimentConfig
from dpprof.config.flat import parse_experiment, parse_trainers
from dpprof.drive.launch.launcher import Launcher
from dpprof.drive.workload_module import refuse_missing_module


def experiment_to_advise(
    asked: AdviceConfig, values: Mapping[str, object], launcher: Launcher
) -> tuple[ExperimentConfig, list[Change], dict[str, str]]:
    """A resolved experiment, its single changes, and why others are left out. Raises ConfigError."""
    trainers = parse_trainers(asked.trainers)
    config = parse_experiment({**ADVICE_DEFAULTS, **values, "savings": False}, EstimatingConfig)
    refuse_missing_module(config.workload, launcher=launcher)
    config = config.resolve(cuda_available=True)
    return config, *possible_changes(config, trainers)
