"""Which command takes which settings: command line, MLproject and docs/parameters.md are made from this."""

import copy
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dpprof.config.advice import ADVICE_DEFAULTS, AdviceConfig
from dpprof.config.budget import BudgetConfig
from dpprof.config.check import CHECK_DEFAULTS, VERIFY_DEFAULTS, CheckConfig
from dpprof.config.drive import DriveConfig, WorkersConfig
from dpprof.config.estimating import EstimatingConfig
from dpprof.config.fit import FitConfig
from dpprof.config.from_plan import FromPlanConfig
from dpprof.config.measuring import MeasuringConfig
from dpprof.config.own_options import OwnOption, launching_options, training_options
from dpprof.config.plan import PlanConfig
from dpprof.config.sweep import AXES, SweepConfig
from dpprof.config.training import TrainingConfig
from dpprof.settings import OptionValue, fields, setting


@dataclass(frozen=True)
class TestConfig:
    """The settings of the test entry point."""

    __test__ = False  # not a test class, whatever its name

    device: str = setting(
        "auto",
        "auto is CUDA if available, else the CPU.",
        choices=fields(TrainingConfig)["device"].metadata["choices"],
    )


# What the settings of a class are about, as help says it.
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
    WorkersConfig: "How it runs, and where it goes",
    DriveConfig: "How it runs, and where it goes",
}


@dataclass(frozen=True)
class Takes:
    """The settings that a command takes: those of some classes, in order, `without` some.

    `without` gives the reason for each name, `defaults` those that are the command's own.
    """

    classes: tuple[type, ...]
    without: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, OptionValue] = field(default_factory=dict)

    @property
    def settings(self) -> list["dataclasses.Field[Any]"]:
        """The settings that dpprof declares, in order."""
        return [setting for found in self.by_title.values() for setting in found]

    @property
    def by_title(self) -> dict[str, list["dataclasses.Field[Any]"]]:
        """The same by what they are about."""
        found: dict[str, list[dataclasses.Field[Any]]] = {}
        for cls in self.classes:
            kept = [self._with_default(s) for name, s in fields(cls).items() if name not in self.without]
            found.setdefault(TITLES[cls], []).extend(kept)
        return found

    def _with_default(self, declared: "dataclasses.Field[Any]") -> "dataclasses.Field[Any]":
        if declared.name in self.defaults:
            declared = copy.copy(declared)
            declared.default = self.defaults[declared.name]
        return declared

    @property
    def own_options(self) -> list[OwnOption]:
        """The options that trainers, workloads and launchers declare beside themselves."""
        found = list(training_options().values()) if TrainingConfig in self.classes else []
        names = {setting.name for setting in self.settings}
        return found + (list(launching_options().values()) if "launcher" in names else [])


_VARIED = dict.fromkeys(AXES.values(), "the grid varies it")
_ESTIMATED = _VARIED | {
    "repeats": "an estimate comes out the same every time",
}
_CHECKED = dict.fromkeys(("parallel", "world_size"), "what a trainer stumbles on shows on one rank") | {
    "trainer": "every one of trainers is tried",
    "runs_dir": "nothing is kept",
    **dict.fromkeys(
        ("loop", "optimizer", "lr", "momentum", "noise_multiplier", "max_grad_norm"),
        "what a trainer stumbles on does not depend on it",
    ),
}
_VERIFIED = {
    "trainer": "every one of trainers is verified",
    "max_grad_norm": "it is chosen so that most samples are clipped",
    "poisson_sampling": "batches of other sizes are tried anyway",
}
_PLANNED = {
    "trainer": "every one of trainers is weighed",
    "batch_size": "the search finds it",
    "world_size": "num_devices tells it",
    "accumulation_steps": "the logical batch tells it",
    "noise_multiplier": "the budget tells it",
    "poisson_sampling": "every plan assumes it",
    "poisson_tail": "batches are split by size",
    "savings": "the search asks for the largest size alone",
}
COMMANDS: dict[str, Takes] = {
    "profile": Takes((FromPlanConfig, TrainingConfig, BudgetConfig, MeasuringConfig, DriveConfig)),
    "test": Takes((TestConfig, DriveConfig)),
    "check": Takes((CheckConfig, TrainingConfig, DriveConfig), without=_CHECKED, defaults=CHECK_DEFAULTS),
    "verify": Takes(
        (CheckConfig, FromPlanConfig, TrainingConfig, DriveConfig),
        without=_VERIFIED,
        defaults=VERIFY_DEFAULTS,
    ),
    "sweep": Takes(
        (SweepConfig, TrainingConfig, BudgetConfig, MeasuringConfig, DriveConfig), without=_VARIED
    ),
    "estimate": Takes(
        (SweepConfig, TrainingConfig, EstimatingConfig, WorkersConfig, DriveConfig), without=_ESTIMATED
    ),
    "fit": Takes(
        (FitConfig, SweepConfig, TrainingConfig, EstimatingConfig, WorkersConfig, DriveConfig),
        without=_ESTIMATED
        | {
            "resume": "a search goes from one estimate to the next",
            "accumulation_steps": "logical_batch tells whether steps are accumulated",
            "savings": "the search asks for the largest size alone",
        },
    ),
    "plan": Takes(
        (PlanConfig, TrainingConfig, EstimatingConfig, WorkersConfig, DriveConfig), without=_PLANNED
    ),
    "advise": Takes(
        (AdviceConfig, FromPlanConfig, TrainingConfig, EstimatingConfig, WorkersConfig, DriveConfig),
        without={"savings": "the lean loop is one of the changes"},
        defaults=ADVICE_DEFAULTS,
    ),
}
