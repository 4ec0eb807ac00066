"""An experiment as one flat object of names and values: as options give it, and as files and MLflow keep it.

A flat object has the settings of both ways, to measure and to estimate: those of the other way have their
defaults. `passes` tells which of the two it is.
"""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from dpprof.config.budget import BudgetConfig
from dpprof.config.drive import DriveConfig
from dpprof.config.estimating import ESTIMATE, EstimatingConfig
from dpprof.config.experiment import ExperimentConfig
from dpprof.config.measuring import MeasuringConfig
from dpprof.config.own_options import (
    launching_options,
    parse_own,
    refuse_untaken,
    taken_by,
    training_options,
)
from dpprof.config.training import TrainingConfig
from dpprof.errors import ConfigError
from dpprof.settings import OptionValue, fields, parse, parse_all, shown
from dpprof.vocabulary.registry import NAME
from dpprof.vocabulary.trainers import STANDARD, TRAINER_NAMES, trainers_named
from dpprof.vocabulary.workloads import BUILT_IN_WORKLOAD, WORKLOADS, listed

# What a flat object of an estimate has for its passes.
How = type[MeasuringConfig] | type[EstimatingConfig]
# The settings that say how an experiment was measured or estimated, not what it was.
HOW_MEASURED = (*fields(MeasuringConfig), *fields(EstimatingConfig))
# Those that say how long the whole training is: a step is the same whatever they are.
BUDGET = tuple(fields(BudgetConfig))
# The settings that every experiment has.
PARTS = fields(TrainingConfig) | fields(MeasuringConfig) | fields(EstimatingConfig) | fields(BudgetConfig)


def experiment_settings() -> dict[str, "dataclasses.Field[Any]"]:
    """Every setting that a flat object may have, own options included."""
    return PARTS | {name: option.field for name, option in training_options().items()}


def parse_experiment(values: Mapping[str, object], how: How) -> ExperimentConfig:
    """An experiment from raw values, defaults where none is given; those of the other way are left out.

    Raises ConfigError for a bad value, an unknown name, or an option that neither trainer nor workload
    has.
    """
    given, options = parse_any_trainers(values, how)
    refuse_untaken((given.trainer, given.workload), training_options(), options)
    return with_own_options(given, options)


def parse_trainers(text: str) -> list[str]:
    """The trainers of a list of names or groups, each once. Raises ConfigError."""
    try:
        found = [parse(fields(TrainingConfig)["trainer"], name) for name in trainers_named(text)]
    except ConfigError as error:
        raise ConfigError(f"trainers: {error}") from None
    return list(dict.fromkeys(str(name) for name in found))


def parse_any_trainers(
    values: Mapping[str, object], how: How
) -> tuple[ExperimentConfig, dict[str, OptionValue]]:
    """As `parse_experiment`, but own options come separately, whichever trainer or workload has them."""
    known = experiment_settings()
    for name in values:
        if name not in known:
            raise ConfigError(f"unknown option {shown(name)}, allowed: {', '.join(known)}")
    own = training_options()
    training = parse_all(TrainingConfig, _only(fields(TrainingConfig), values))
    # Checked for an experiment that is measured too, as one file may serve both.
    parse_all(EstimatingConfig, _only(fields(EstimatingConfig), values))
    budget = parse_all(BudgetConfig, _only(fields(BudgetConfig), values))
    if how is EstimatingConfig:
        budget = BudgetConfig()
    part = parse_all(how, _only(fields(how), values))
    experiment = ExperimentConfig(**vars(training), how=part, budget=budget)
    return experiment, parse_own(own, _only(own, values))


def with_own_options(config: ExperimentConfig, options: Mapping[str, OptionValue]) -> ExperimentConfig:
    """The experiment with all options of its trainer and its workload, defaults where none is given."""
    taken = taken_by((config.trainer, config.workload), training_options(), options)
    return dataclasses.replace(config, options=taken)


def to_flat(config: ExperimentConfig) -> dict[str, Any]:
    """The flat object of an experiment."""
    training = {name: getattr(config, name) for name in fields(TrainingConfig)}
    if isinstance(config.how, MeasuringConfig):
        how = vars(config.how) | vars(EstimatingConfig())
    else:
        how = vars(MeasuringConfig()) | {"passes": ESTIMATE} | vars(config.how)
    return training | how | vars(config.budget) | dict(config.options)


def from_flat(values: Mapping[str, object]) -> ExperimentConfig:
    """The experiment of a flat object; what it leaves out has its default.

    A trainer or a workload that is not listed here may have options that are not listed either. Raises
    ConfigError for a value or a name that cannot be used.
    """
    how: How = EstimatingConfig if values.get("passes") == ESTIMATE else MeasuringConfig
    if how is EstimatingConfig:
        values = {name: value for name, value in values.items() if name != "passes"}
    trainer, workload = values.get("trainer", STANDARD), values.get("workload", BUILT_IN_WORKLOAD)
    unlisted = {
        name: text
        for name, text, is_known in (
            ("trainer", trainer, str(trainer) in TRAINER_NAMES),
            ("workload", workload, str(workload) in WORKLOADS or ":" in str(workload)),
        )
        if not is_known and isinstance(text, str) and re.fullmatch(NAME, text)
    }
    if not unlisted:
        return parse_experiment(values, how)
    listed = {name: value for name, value in values.items() if name in experiment_settings()}
    known = {"trainer": STANDARD, "workload": BUILT_IN_WORKLOAD}
    stand_ins = {name: known[name] for name in unlisted}
    config = with_own_options(*parse_any_trainers(listed | stand_ins, how))
    more = {n: v for n, v in values.items() if n not in PARTS and isinstance(v, OptionValue)}
    config = dataclasses.replace(config, options={**config.options, **more})
    config = dataclasses.replace(config, trainer=unlisted.get("trainer", config.trainer))
    return dataclasses.replace(config, workload=unlisted.get("workload", config.workload))


def trainers_options(config: ExperimentConfig) -> set[str]:
    """The names of the options that an experiment has of its trainer alone."""
    workload = WORKLOADS.get(listed(config.workload))
    shared = fields(workload.options) if workload and workload.options else ()
    return config.options.keys() - set(shared)


def parse_drive(values: Mapping[str, object]) -> tuple[DriveConfig, dict[str, object]]:
    """The driving process's settings, with the launcher's own, and the raw values of the other options.

    Raises ConfigError.
    """
    own = launching_options()
    drive = parse_all(DriveConfig, _only(fields(DriveConfig), values))
    options = parse_own(own, _only(own, values))
    refuse_untaken((drive.launcher,), own, options)
    drive = dataclasses.replace(drive, options=taken_by((drive.launcher,), own, options))
    return drive, {n: v for n, v in values.items() if n not in own and n not in fields(DriveConfig)}


def _only(names: Mapping[str, object], values: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in values.items() if name in names}
