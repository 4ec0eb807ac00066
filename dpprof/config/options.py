"""Settings of each command, and own options of trainers, workloads and launchers.

The command line and docs/parameters.md are made from this.
"""

import copy
import dataclasses
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dpprof.config.budget import BudgetConfig
from dpprof.config.drive import DriveConfig
from dpprof.config.entry_points import (
    AXES,
    AdviceConfig,
    CalibrateConfig,
    CheckConfig,
    FitConfig,
    FromPlanConfig,
    PlanConfig,
    SweepConfig,
    TestConfig,
    WatchConfig,
)
from dpprof.config.estimating import EstimatingConfig
from dpprof.config.measuring import MeasuringConfig
from dpprof.config.training import TrainingConfig
from dpprof.errors import refuse
from dpprof.vocabulary.launcher_info import LauncherInfo
from dpprof.vocabulary.launchers import LAUNCHERS
from dpprof.vocabulary.settings import OptionValue, fields, parse
from dpprof.vocabulary.trainer_info import TrainerInfo
from dpprof.vocabulary.trainers import TRAINERS
from dpprof.vocabulary.workload_info import WorkloadInfo
from dpprof.vocabulary.workloads import WORKLOADS, listed

Setting = dataclasses.Field[Any]

TITLES: dict[type, str] = {
    CheckConfig: "What is checked",
    FromPlanConfig: "What is trained",
    SweepConfig: "The grid",
    FitConfig: "The search",
    PlanConfig: "The budget, the data and the devices",
    AdviceConfig: "The advice",
    TrainingConfig: "What is trained",
    BudgetConfig: "The whole training, for its epsilon",
    MeasuringConfig: "How it is measured",
    EstimatingConfig: "What it is estimated for",
    TestConfig: "Where it runs",
    CalibrateConfig: "What is measured",
    WatchConfig: "What is watched, and how",
    DriveConfig: "How it runs, and where it goes",
}


@dataclass(frozen=True)
class OwnOption:
    """A setting that only some trainers, workloads or launchers have, and their names."""

    field: Setting
    takers: tuple[str, ...]


def training_options() -> dict[str, OwnOption]:
    """Return the own options of all listed trainers and workloads by name."""
    return _collect([*TRAINERS.values(), *WORKLOADS.values()], set())


def launching_options() -> dict[str, OwnOption]:
    """Return the own options of all listed launchers by name."""
    return _collect(LAUNCHERS.values(), training_options().keys())


def _collect(
    infos: Iterable[TrainerInfo | WorkloadInfo | LauncherInfo], others: Iterable[str]
) -> dict[str, OwnOption]:
    """Collect options by name; one whose name is taken by another setting is left out with a warning."""
    taken = {*others, *(name for cls in TITLES for name in fields(cls))}
    found: dict[str, OwnOption] = {}
    for info in infos:
        for name, declared in fields(info.options).items() if info.options else ():
            earlier = found.get(name)
            if name in taken or (earlier is not None and not _are_same(earlier.field, declared)):
                warnings.warn(
                    f"the option {name} of {info.name} is left out: the name is taken", stacklevel=2
                )
            else:
                found[name] = OwnOption(declared, (*(earlier.takers if earlier else ()), info.name))
    return found


def _are_same(one: Setting, other: Setting) -> bool:
    kinds = type(one.default) is type(other.default)
    return kinds and one.default == other.default and dict(one.metadata) == dict(other.metadata)


def own_values(
    takers: Iterable[str], known: Mapping[str, OwnOption], values: Mapping[str, OptionValue]
) -> dict[str, OptionValue]:
    """Return all own options of the named trainers, workloads or launchers: given values or defaults."""
    names = set(map(listed, takers))
    return {
        name: values[name] if name in values else parse(option.field, option.field.default)
        for name, option in known.items()
        if names.intersection(option.takers)
    }


def refuse_untaken(takers: Iterable[str], values: Mapping[str, OptionValue]) -> None:
    """Raise ConfigError for an own option, except at its default, that none of the named has."""
    names, known = set(map(listed, takers)), training_options() | launching_options()
    for name, value in values.items():
        option = known[name]
        if value != option.field.default and not names.intersection(option.takers):
            raise refuse(name, value, f"only with {' or '.join(option.takers)}")


@dataclass(frozen=True)
class Takes:
    """Settings of a command: those of some classes in order, `without` some, with its own `defaults`."""

    classes: tuple[type, ...]
    without: tuple[str, ...] = ()
    defaults: Mapping[str, OptionValue] = field(default_factory=dict)

    @property
    def settings(self) -> list[Setting]:
        """Settings that dpprof declares, in order."""
        return [setting for found in self.by_title.values() for setting in found]

    @property
    def by_title(self) -> dict[str, list[Setting]]:
        """Settings under their headings."""
        found: dict[str, list[Setting]] = {}
        for cls in self.classes:
            kept = [self._with_default(s) for name, s in fields(cls).items() if name not in self.without]
            found.setdefault(TITLES[cls], []).extend(kept)
        return found

    def _with_default(self, declared: Setting) -> Setting:
        if declared.name in self.defaults:
            declared = copy.copy(declared)
            declared.default = self.defaults[declared.name]
        return declared

    @property
    def own_options(self) -> list[OwnOption]:
        """Own options of trainers, workloads and launchers that the command takes."""
        found = list(training_options().values()) if TrainingConfig in self.classes else []
        return found + (list(launching_options().values()) if DriveConfig in self.classes else [])


# Settings that a command with a grid leaves out, as the grid varies them.
_VARIED = (*AXES.values(),)
# An estimate leaves out repeats too: it comes out the same every time.
_ESTIMATED = (*_VARIED, "repeats")
# What `check` leaves out: what a trainer stumbles on shows on one rank, and does not depend on these. Only
# estimates have `workers`.
_CHECKED = (
    "workers",
    "trainer",
    "parallel",
    "world_size",
    "loop",
    "optimizer",
    "lr",
    "momentum",
    "noise_multiplier",
    "max_grad_norm",
)
# What `verify` leaves out: it chooses a norm that clips most samples, and tries other batches anyway.
_VERIFIED = ("workers", "trainer", "max_grad_norm", "poisson_sampling")
# What `plan` leaves out: its search, its budget and its logical batch tell them.
_PLANNED = (
    "trainer",
    "batch_size",
    "world_size",
    "accumulation_steps",
    "noise_multiplier",
    "poisson_sampling",
    "poisson_tail",
    "savings",
)
# What `--help` lists of a command with many settings; `--help-all` has the rest.
FIRST = (
    "plan",
    "trainer",
    "trainers",
    "workload",
    "model_size",
    "model_sizes",
    "train",
    "batch_size",
    "batch_sizes",
    "seq_len",
    "seq_lens",
    "precision",
    "precisions",
    "accumulation_steps",
    "dataset_size",
    "epochs",
    "target_epsilon",
    "logical_batch",
    "logical_batches",
    "min_steps",
    "num_devices",
    "parallel",
    "device",
    "target",
    "device_memory_gib",
    "headroom",
    "along",
    "verify",
    "passes",
    "repeats",
    "sweep_name",
    "resume",
    "runs_dir",
)
COMMANDS: dict[str, Takes] = {
    "profile": Takes(
        (FromPlanConfig, TrainingConfig, BudgetConfig, MeasuringConfig, DriveConfig), without=("workers",)
    ),
    "test": Takes((TestConfig, DriveConfig), without=("workers",)),
    "check": Takes(
        (CheckConfig, TrainingConfig, DriveConfig),
        without=_CHECKED,
        # Few samples for speed; three, so that few other dimensions equal the batch's.
        defaults={"batch_size": 3, "seq_len": 16},
    ),
    "verify": Takes(
        (CheckConfig, FromPlanConfig, TrainingConfig, DriveConfig),
        without=_VERIFIED,
        # Small, so that verifying a trainer takes seconds.
        defaults={"batch_size": 4, "seq_len": 16, "model_size": "tiny"},
    ),
    "sweep": Takes(
        (SweepConfig, TrainingConfig, BudgetConfig, MeasuringConfig, DriveConfig),
        without=("workers", *_VARIED),
    ),
    "estimate": Takes((SweepConfig, TrainingConfig, EstimatingConfig, DriveConfig), without=_ESTIMATED),
    "fit": Takes(
        (FitConfig, SweepConfig, TrainingConfig, EstimatingConfig, DriveConfig),
        without=(*_ESTIMATED, "resume", "accumulation_steps", "savings"),
    ),
    "plan": Takes((PlanConfig, TrainingConfig, EstimatingConfig, DriveConfig), without=_PLANNED),
    "advise": Takes(
        (AdviceConfig, FromPlanConfig, TrainingConfig, EstimatingConfig, DriveConfig),
        without=("savings",),
        # The usual first choice for private training.
        defaults={"trainer": "DPSGDTrainer"},
    ),
    "calibrate": Takes((CalibrateConfig, DriveConfig), without=("workers",)),
    "watch": Takes((WatchConfig,)),
}
