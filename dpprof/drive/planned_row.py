"""Recommended row of a plan, as an experiment's settings with the predicted figures."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dpprof.config.estimating import EstimatingConfig
from dpprof.config.experiment import ExperimentConfig
from dpprof.config.flat import from_flat
from dpprof.config.options import COMMANDS
from dpprof.config.training import SIZE_FIELDS, TrainingConfig
from dpprof.errors import ConfigError, DpprofError, refuse
from dpprof.json_files import read_json, typed
from dpprof.record.record import Predicted
from dpprof.vocabulary.parallel import NONE
from dpprof.vocabulary.settings import fields, parse

# Settings that affect neither memory nor time of a step, as long as noise is drawn.
_FREE = {"seed", "lr", "noise_multiplier", "max_grad_norm"}
# Set by `mlflow run`, which passes every parameter.
_BY_MLFLOW_RUN = "MLFLOW_RUN_ID"


@dataclass(frozen=True)
class PlannedRow:
    """Experiment that a plan recommends, with its prediction. `headroom` is what the plan keeps free."""

    settings: Mapping[str, Any]
    predicted: Predicted
    headroom: str = ""
    config: ExperimentConfig = field(init=False)

    def __post_init__(self) -> None:
        """Raise ConfigError if the settings are from another version."""
        object.__setattr__(self, "config", from_flat(self.settings))

    def fill(self, given: Mapping[str, object], command: str) -> dict[str, object]:
        """Return a command's options, with the row's settings where none is given.

        Under `mlflow run`, an option with its default value counts as not given. Settings that depend on a
        given option are not filled in: sizes on the model, own options on trainer and workload.
        """
        takes = COMMANDS[command]
        own = {option.field.name: option.field for option in takes.own_options}
        known = {setting.name: setting for setting in takes.settings} | own
        own_choice = {
            name: value
            for name, value in given.items()
            if _BY_MLFLOW_RUN not in os.environ
            or name not in known
            or parse(known[name], value) != known[name].default
        }
        names = known.keys() & (fields(TrainingConfig) | fields(EstimatingConfig)).keys()
        if not {"trainer", "trainers", "workload"} & own_choice.keys():
            names |= own.keys()
        if {"model_size", "workload"} & own_choice.keys():
            names -= {"model_size", *SIZE_FIELDS}
        if str(own_choice.get("parallel")) == NONE:
            names -= {"world_size"}
        offered = dict(self.settings)
        if self.headroom and "headroom" in known:
            offered["headroom"] = self.headroom
            names |= {"headroom"}
        return {name: offered[name] for name in names if name in offered} | own_choice

    def fill_verify(self, given: Mapping[str, object]) -> dict[str, object]:
        """As `fill`, for `verify`, but with its own few samples: a naive loop must process them too."""
        filled = self.fill(given, "verify")
        for name in (*(COMMANDS["verify"].defaults.keys() - {"model_size"}), "accumulation_steps"):
            filled.pop(name, None)
            if name in given:
                filled[name] = given[name]
        return {"trainers": self.config.trainer} | filled

    def differences(self, config: ExperimentConfig) -> list[str]:
        """Describe the settings that make an experiment's figures incomparable with the row's."""
        found = []
        for name in fields(TrainingConfig):
            value, planned = getattr(config, name), getattr(self.config, name)
            if value != planned and name not in _FREE:
                found.append(f"{name} is {value}, in the plan {planned}")
        if not config.noise_multiplier:
            found.append("noise_multiplier is 0: no noise is drawn")
        if config.trainer == self.config.trainer and config.options != self.config.options:
            found.append("the options of its trainer or workload are others")
        return found


def read_plan(given: str, option: str = "plan") -> Any:
    """Read a plan's file, given directly or by its folder. Raises ConfigError."""
    path = Path(given)
    try:
        return read_json(path / "plan.json" if path.is_dir() else path)
    except DpprofError as error:
        raise ConfigError(f"{option}: {error}") from None


def planned_row(given: str) -> PlannedRow:
    """Return the row that a plan recommends. Raises ConfigError if there is none, or the file is no plan."""
    data = read_plan(given)
    try:
        whole = typed(dict[str, Any], data)
        row = whole.get("recommended")
        if row is None:
            raise refuse("plan", given, "a plan that recommends a row")
        found = typed(dict[str, Any], row)
        settings = typed(dict[str, Any], found.get("experiment"))
        headroom = str(typed(dict[str, Any], whole.get("asked", {})).get("headroom", ""))
        return PlannedRow(settings, typed(Predicted, found.get("predicted")), headroom)
    except ConfigError:
        raise
    except DpprofError as error:
        raise ConfigError(f"plan: {given} cannot be used: {error}") from None
