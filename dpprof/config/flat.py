"""An experiment as a flat object of names and values, as in options, files and MLflow.

A flat object has settings for measuring and for estimating; those of the unused way have their defaults.
`passes` tells which way is used.
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

from dpprof.config.budget import BudgetConfig
from dpprof.config.drive import DriveConfig
from dpprof.config.estimating import ESTIMATE, FOUND_IN_TIMES, EstimatingConfig
from dpprof.config.experiment import ExperimentConfig
from dpprof.config.measuring import MeasuringConfig
from dpprof.config.named_trainers import TARGET
from dpprof.config.options import launching_options, own_values, refuse_untaken, training_options
from dpprof.config.training import TrainingConfig
from dpprof.errors import ConfigError, shown
from dpprof.vocabulary.registry import NAME
from dpprof.vocabulary.settings import OptionValue, fields, parse, take
from dpprof.vocabulary.trainers import STANDARD, TRAINER_GROUPS, TRAINER_NAMES
from dpprof.vocabulary.workloads import BUILT_IN_WORKLOAD, WORKLOADS, listed

How = type[MeasuringConfig] | type[EstimatingConfig]
# Settings of measuring or estimating, not of the training.
HOW_MEASURED = (*fields(MeasuringConfig), *fields(EstimatingConfig), *FOUND_IN_TIMES)
# Settings of the whole training's length, which do not change a step.
BUDGET = tuple(fields(BudgetConfig))
# Read in place of a trainer and a workload that this dpprof does not know.
_STAND_INS = {"trainer": STANDARD, "workload": BUILT_IN_WORKLOAD}
PARTS = fields(TrainingConfig) | fields(MeasuringConfig) | fields(EstimatingConfig) | fields(BudgetConfig)


def experiment_settings() -> dict[str, "dataclasses.Field[Any]"]:
    """Return every setting that a flat object may have, own options included."""
    return PARTS | {name: option.field for name, option in training_options().items()}


def parse_experiment(values: Mapping[str, object], how: How) -> ExperimentConfig:
    """Parse an experiment from raw values, with defaults; settings of the other way are ignored.

    Raises ConfigError for a bad value, an unknown name, or an option that neither trainer nor workload has.
    """
    config = parse_for_trainers(values, how)
    refuse_untaken((config.trainer, config.workload), config.options)
    return with_own_options(config)


def parse_trainers(text: str) -> list[str]:
    """Parse a list of trainers or groups; each is returned once. Raises ConfigError."""
    names = [name for item in text.split(",") for name in TRAINER_GROUPS.get(item.strip(), (item,))]
    try:
        found = [parse(fields(TrainingConfig)["trainer"], name) for name in names]
    except ConfigError as error:
        raise ConfigError(f"trainers{str(error).removeprefix('trainer')}") from None
    return list(dict.fromkeys(str(name) for name in found))


def parse_for_trainers(
    values: Mapping[str, object], how: How, trainers: Sequence[str] = ()
) -> ExperimentConfig:
    """Parse an experiment whose trainer is still to be replaced by each of these; see `parse_experiment`.

    Its options are the given ones of any trainer; `with_own_options` makes them those of one.
    """
    settings = experiment_settings()
    for name in values:
        if name not in settings:
            raise ConfigError(f"unknown option {shown(name)}, allowed: {', '.join(settings)}")
    training, rest = take(TrainingConfig, values)
    # Also checked when measuring, as one file may serve both.
    estimating, rest = take(EstimatingConfig, rest)
    budget, rest = take(BudgetConfig, rest)
    parts: dict[str, Any] = {"how": estimating}
    if how is MeasuringConfig:
        parts = {"how": take(MeasuringConfig, rest)[0], "budget": budget}
    known = training_options()
    own = {name: parse(option.field, values[name]) for name, option in known.items() if name in values}
    if trainers:
        refuse_untaken([*trainers, training.workload], own)
    return ExperimentConfig(**vars(training), **parts, options=own)


def with_own_options(config: ExperimentConfig) -> ExperimentConfig:
    """Return the experiment with all options of its trainer and workload alone: those it has, or defaults."""
    own = own_values((config.trainer, config.workload), training_options(), config.options)
    return dataclasses.replace(config, options=own)


def to_flat(config: ExperimentConfig) -> dict[str, Any]:
    """Return the flat object of an experiment."""
    training = {name: getattr(config, name) for name in fields(TrainingConfig)}
    if isinstance(config.how, MeasuringConfig):
        how = vars(config.how) | vars(EstimatingConfig())
    else:
        how = vars(MeasuringConfig()) | {"passes": ESTIMATE} | vars(config.how)
    how = {name: value for name, value in how.items() if value or name not in FOUND_IN_TIMES}
    return training | how | vars(config.budget) | dict(config.options)


def from_flat(values: Mapping[str, object]) -> ExperimentConfig:
    """Build the experiment of a flat object; missing settings have their default.

    Unlisted trainers and workloads may have unlisted options; none of their code is imported. Raises
    ConfigError for a bad value or name.
    """
    found: dict[str, Any] = {name: str(values[name]) for name in FOUND_IN_TIMES if name in values}
    values = {name: value for name, value in values.items() if name not in FOUND_IN_TIMES}
    how: How = EstimatingConfig if values.get("passes") == ESTIMATE else MeasuringConfig
    if how is EstimatingConfig:
        values = {name: value for name, value in values.items() if name != "passes"}
    config = _from_settings(values, how)
    if isinstance(config.how, EstimatingConfig) and found:
        config = dataclasses.replace(config, how=dataclasses.replace(config.how, **found))
    return config


def _from_settings(values: Mapping[str, object], how: How) -> ExperimentConfig:
    """Build an experiment whose trainer and workload may be unlisted."""
    unlisted: dict[str, Any] = {}
    for name, known, kind in (("trainer", TRAINER_NAMES, f"{NAME}|{TARGET}"), ("workload", WORKLOADS, NAME)):
        text = values.get(name, _STAND_INS[name])
        if isinstance(text, str) and text not in known and re.fullmatch(kind, text):
            unlisted[name] = text
    if not unlisted:
        return parse_experiment(values, how)
    settings = {name: value for name, value in values.items() if name in experiment_settings()}
    stand_ins = {name: _STAND_INS[name] for name in unlisted}
    config = with_own_options(parse_for_trainers(settings | stand_ins, how))
    more = {n: v for n, v in values.items() if n not in PARTS and isinstance(v, OptionValue)}
    return dataclasses.replace(config, options={**config.options, **more}, **unlisted)


def trainers_options(config: ExperimentConfig) -> set[str]:
    """Return the names of an experiment's options that only its trainer has."""
    workload = WORKLOADS.get(listed(config.workload))
    shared = fields(workload.options) if workload and workload.options else ()
    return config.options.keys() - set(shared)


def parse_drive(values: Mapping[str, object]) -> tuple[DriveConfig, dict[str, object]]:
    """Parse the driving process's settings; return the other raw values too. Raises ConfigError."""
    known = launching_options()
    drive, rest = take(DriveConfig, values)
    options = {name: parse(known[name].field, value) for name, value in rest.items() if name in known}
    refuse_untaken((drive.launcher,), options)
    drive = dataclasses.replace(drive, options=own_values((drive.launcher,), known, options))
    return drive, {name: value for name, value in rest.items() if name not in known}
