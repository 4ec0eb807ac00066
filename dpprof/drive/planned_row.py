"""The recommended row of a plan, as settings of an experiment and what they should give."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dpprof.config.commands import COMMANDS
from dpprof.config.experiment import ExperimentConfig
from dpprof.config.flat import from_flat
from dpprof.config.own_options import training_options
from dpprof.config.training import SIZE_FIELDS, TrainingConfig
from dpprof.errors import ConfigError, DpprofError
from dpprof.json_files import read_json, typed
from dpprof.record.predicted import Predicted
from dpprof.settings import fields, refuse

# What neither the memory nor the time of a step depends on.
_FREE = {"seed", "lr", "momentum", "noise_multiplier", "max_grad_norm"}
# What `verify` has its own defaults for.
_OF_VERIFY = ("accumulation_steps",)


@dataclass(frozen=True)
class PlannedRow:
    """The experiment that a plan recommends, and what it predicts of it."""

    settings: Mapping[str, Any]
    predicted: Predicted
    config: ExperimentConfig = field(init=False)

    def __post_init__(self) -> None:
        """Raises ConfigError if the settings are of another version."""
        object.__setattr__(self, "config", from_flat(self.settings))

    def fill(self, given: Mapping[str, object]) -> dict[str, object]:
        """The options given, and the row's where none is. What depends on an option that is given is not
        filled in: sizes on the model, own options on trainer and workload.
        """
        names = dict.fromkeys(fields(TrainingConfig))
        if not {"trainer", "trainers", "workload"} & given.keys():
            names |= dict.fromkeys(training_options())
        if {"model_size", "workload"} & given.keys():
            names = {name: None for name in names if name not in ("model_size", *SIZE_FIELDS)}
        return {name: self.settings[name] for name in names if name in self.settings} | dict(given)

    def fill_verify(self, given: Mapping[str, object]) -> dict[str, object]:
        """As `fill`, for `verify`, which tries few samples: a naive loop must be able to do them too."""
        takes = COMMANDS["verify"]
        kept = {setting.name for setting in takes.settings} | {own.field.name for own in takes.own_options}
        filled = self.fill(given)
        for name in (*takes.defaults, *_OF_VERIFY):
            if name != "model_size" and name not in given:
                filled.pop(name, None)
        found = {name: value for name, value in filled.items() if name in kept}
        return {"trainers": self.config.trainer} | found

    def differences(self, config: ExperimentConfig) -> list[str]:
        """What sets an experiment apart from the row so that its figures cannot be compared, in words."""
        found = []
        for name in fields(TrainingConfig):
            value, planned = getattr(config, name), getattr(self.config, name)
            if value != planned and name not in _FREE:
                found.append(f"{name} is {value}, in the plan {planned}")
        if config.trainer == self.config.trainer and config.options != self.config.options:
            found.append("the options of its trainer or workload are others")
        return found


def read_plan(given: str, option: str = "plan") -> Any:
    """The content of a plan's file, which is given by itself or by its folder. Raises ConfigError."""
    path = Path(given)
    try:
        return read_json(path / "plan.json" if path.is_dir() else path)
    except DpprofError as error:
        raise ConfigError(f"{option}: {error}") from None


def planned_row(given: str) -> PlannedRow:
    """The row that a plan recommends. Raises ConfigError if there is none, or the file is no plan."""
    data = read_plan(given)
    try:
        row = typed(dict[str, Any], data).get("recommended")
        if row is None:
            raise refuse("plan", given, "a plan that recommends a row")
        found = typed(dict[str, Any], row)
        settings = typed(dict[str, Any], found.get("experiment"))
        return PlannedRow(settings, typed(Predicted, found.get("predicted")))
    except ConfigError:
        raise
    except DpprofError as error:
        raise ConfigError(f"plan: {given} cannot be used: {error}") from None
