"""A row of a plan, as an experiment's settings with the predicted figures."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from dpprof.config.entry_points import FromPlanConfig
from dpprof.config.estimating import EstimatingConfig
from dpprof.config.experiment import ExperimentConfig
from dpprof.config.flat import from_flat
from dpprof.config.options import COMMANDS, Setting
from dpprof.config.training import SIZE_FIELDS, TrainingConfig
from dpprof.errors import ConfigError, DpprofError
from dpprof.findings.plan.reading import read_plan, reading
from dpprof.json_files import read_json, typed
from dpprof.record.record import Predicted
from dpprof.vocabulary.parallel import NONE
from dpprof.vocabulary.settings import fields
from dpprof.vocabulary.trainers import TRAINER_NAMES
from dpprof.vocabulary.workloads import WORKLOADS, listed

# Settings that affect neither memory nor time of a step, as long as noise is drawn.
_FREE = {"seed", "lr", "noise_multiplier", "max_grad_norm"}
# Given, these make a step small enough for a trial.
_SIZES = {"model_size", "batch_size", "workload"}


@dataclass(frozen=True)
class PlannedRow:
    """A plan's row as an experiment, with its prediction. `headroom` is what the plan keeps free."""

    settings: Mapping[str, Any]
    predicted: Predicted
    headroom: str = ""
    config: ExperimentConfig = field(init=False)

    def __post_init__(self) -> None:
        """Raise ConfigError if the settings are from another version."""
        object.__setattr__(self, "config", from_flat(self.settings))

    def fill(
        self, given: Mapping[str, object], command: str, *, has_cuda: bool | None = None
    ) -> dict[str, object]:
        """Return a command's options, with the row's settings where none is given.

        Settings that depend on a given option are not filled in: sizes on the model, own options on trainer
        and workload. Raises ConfigError if the row trains code that is not dpprof's and that the options do
        not name, if it is for CUDA and is to be measured where there is none, or where its step on the CPU
        may not fit.
        """
        known, own_choice = _settings_of(command), dict(given)
        self._check_code(own_choice)
        if own_choice.get("workload") == self.config.workload:
            del own_choice["workload"]
        names = known.keys() & (fields(TrainingConfig) | fields(EstimatingConfig)).keys()
        if has_cuda is not None and self.config.device == "cuda":
            self._check_device(own_choice, has_cuda)
        trainer = str(own_choice.get("trainer", own_choice.get("trainers", self.config.trainer)))
        if TRAINER_NAMES.get(trainer, trainer) == self.config.trainer and "workload" not in own_choice:
            names |= {option.field.name for option in COMMANDS[command].own_options}
        if {"model_size", "workload"} & own_choice.keys():
            names -= {"model_size", *SIZE_FIELDS}
        if str(own_choice.get("parallel")) == NONE:
            names -= {"world_size"}
        offered = dict(self.settings)
        if self.headroom and "headroom" in known:
            offered["headroom"] = self.headroom
            names |= {"headroom"}
        return {name: offered[name] for name in names if name in offered} | own_choice

    def _check_code(self, given: Mapping[str, object]) -> None:
        """Raise ConfigError if the row names code that only its file asks to run."""
        trainer, workload = self.config.trainer, self.config.workload
        if trainer not in TRAINER_NAMES and not {"trainer", "trainers"} & given.keys():
            place = trainer if ":" in trainer else "package.module:CLASS"
            raise ConfigError(
                f"plan: its row trains with {trainer}, whose code is not dpprof's: to run it, give "
                f"--trainer {place}"
            )
        if listed(workload) not in WORKLOADS and "workload" not in given:
            raise ConfigError(
                f"plan: its row trains {workload}, which is not dpprof's code: to run it, give "
                f"--workload {workload}"
            )

    def _check_device(self, given: Mapping[str, object], has_cuda: bool) -> None:
        on_cpu, peak = given.get("device") == "cpu", self.predicted.peak_bytes
        fits = peak is not None and peak * self.config.world_size < psutil.virtual_memory().available
        is_refused = not (fits or _SIZES & given.keys()) if on_cpu else not has_cuda
        if is_refused:
            why = "its row may not fit this machine" if on_cpu else "torch finds no CUDA device here"
            raise ConfigError(
                f"device: the plan is for CUDA, and {why}: for a trial on the processor give --device cpu "
                "and a small step, as --model-size tiny --batch-size 2 --accumulation-steps 1 --parallel none"
            )

    def fill_verify(self, given: Mapping[str, object], *, has_cuda: bool | None = None) -> dict[str, object]:
        """As `fill`, for `verify`, but with its own few samples: a naive loop must process them too."""
        filled = self.fill(given, "verify", has_cuda=has_cuda)
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


def plan_data(given: str) -> Any:
    """Read a plan's file, given directly or by its folder. Raises ConfigError."""
    path = Path(given)
    try:
        return read_json(path / "plan.json" if path.is_dir() else path)
    except DpprofError as error:
        raise ConfigError(f"plan: {error}") from None


def planned_row(asked: FromPlanConfig, given: Mapping[str, object], command: str) -> PlannedRow:
    """Return the row of a plan that a command's options name; see `KeptPlan.row`.

    A trainer that the plan does not have takes the place of the recommended row's. Raises ConfigError if
    there is no such row, or the file is no plan.
    """
    data = plan_data(asked.plan)
    trainer = str(given.get("trainer", given.get("trainers", "")))
    trainer = TRAINER_NAMES.get(trainer, trainer)
    with reading():
        plan = read_plan(data)
    row = plan.row(trainer if trainer in plan.trainers else "", asked.logical_batch)
    with reading():
        predicted = typed(Predicted, {"plan": plan.name, **row.predicted})
        return PlannedRow(plan.settings(row), predicted, str(plan.asked.get("headroom", "")))


def _settings_of(command: str) -> dict[str, Setting]:
    takes = COMMANDS[command]
    own = {option.field.name: option.field for option in takes.own_options}
    return {setting.name: setting for setting in takes.settings} | own
