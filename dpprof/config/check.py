"""What the check of a workload is asked, and the experiments that it tries."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from dpprof.config.experiment import ExperimentConfig
from dpprof.config.flat import parse_any_trainers, parse_trainers, with_own_options
from dpprof.config.measuring import MeasuringConfig
from dpprof.config.own_options import refuse_untaken, training_options
from dpprof.settings import OptionValue, fields, parse_all, refuse, setting
from dpprof.vocabulary.trainers import TRAINERS_HELP

# Few samples, so that it is quick; three, so that hardly another dimension is mistaken for the batch's.
CHECK_DEFAULTS = {"batch_size": 3, "seq_len": 16}

# A model on which verifying a trainer takes seconds.
VERIFY_DEFAULTS: dict[str, OptionValue] = {"batch_size": 4, "seq_len": 16, "model_size": "tiny"}


@dataclass(frozen=True)
class CheckConfig:
    """The settings of the check that an experiment does not have."""

    trainers: str = setting("all", TRAINERS_HELP)


def experiments_to_check(
    values: Mapping[str, object], defaults: Mapping[str, object] = CHECK_DEFAULTS
) -> list[ExperimentConfig]:
    """One experiment for each trainer, from raw options. Raises ConfigError.

    They are resolved where they run: asking for CUDA here would take seconds.
    """
    own = fields(CheckConfig)
    check = parse_all(CheckConfig, {name: value for name, value in values.items() if name in own})
    rest = {**defaults} | {name: value for name, value in values.items() if name not in own}
    trainers = parse_trainers(check.trainers)
    base, options = parse_any_trainers(rest, MeasuringConfig)
    refuse_untaken([*trainers, base.workload], training_options(), options)
    if base.batch_size < 2:
        words = "2 or more: with one sample any first dimension of 1 looks right"
        raise refuse("batch_size", base.batch_size, words)
    base.resolve(cuda_available=True)  # refuses what cannot be right on any machine
    return [with_own_options(dataclasses.replace(base, trainer=trainer), options) for trainer in trainers]


def experiments_to_verify(values: Mapping[str, object], *, cuda_available: bool) -> list[ExperimentConfig]:
    """One resolved experiment for each trainer, which is verified after a step. Raises ConfigError."""
    how = MeasuringConfig(warmup_steps=1, measured_steps=1, passes="clean,verify")
    return [
        dataclasses.replace(config, how=how).resolve(cuda_available=cuda_available)
        for config in experiments_to_check(values, VERIFY_DEFAULTS)
    ]
