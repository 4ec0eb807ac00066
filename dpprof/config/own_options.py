"""The options that trainers, workloads and launchers declare beside themselves."""

import dataclasses
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from dpprof.config.advice import AdviceConfig
from dpprof.config.budget import BudgetConfig
from dpprof.config.drive import DriveConfig, WorkersConfig
from dpprof.config.estimating import EstimatingConfig
from dpprof.config.fit import FitConfig
from dpprof.config.from_plan import FromPlanConfig
from dpprof.config.measuring import MeasuringConfig
from dpprof.config.plan import PlanConfig
from dpprof.config.sweep import SweepConfig
from dpprof.config.training import TrainingConfig
from dpprof.settings import OptionValue, fields, parse, refuse
from dpprof.vocabulary.launchers import LAUNCHERS
from dpprof.vocabulary.trainers import TRAINERS
from dpprof.vocabulary.workloads import WORKLOADS, listed

_DPPROFS = (
    TrainingConfig,
    BudgetConfig,
    MeasuringConfig,
    EstimatingConfig,
    SweepConfig,
    FitConfig,
    PlanConfig,
    FromPlanConfig,
    AdviceConfig,
    WorkersConfig,
    DriveConfig,
)


class Declaring(Protocol):
    """An entry of a table: a trainer, a workload or a launcher."""

    @property
    def name(self) -> str:
        """The name that the user gives."""

    @property
    def options(self) -> type | None:
        """The dataclass of its own options, if it has any."""


@dataclass(frozen=True)
class OwnOption:
    """A setting, and the names of those that have it."""

    field: "dataclasses.Field[Any]"
    takers: tuple[str, ...]


def training_options() -> dict[str, OwnOption]:
    """The own options of all listed trainers and workloads, by name."""
    return _collected([*TRAINERS.values(), *WORKLOADS.values()])


def launching_options() -> dict[str, OwnOption]:
    """The own options of all listed launchers, by name."""
    return _collected(list(LAUNCHERS.values()), training_options())


def _collected(
    declaring: Iterable[Declaring], others: Mapping[str, OwnOption] | None = None
) -> dict[str, OwnOption]:
    """The options by name. One that has a taken name and is another setting is left out with a warning."""
    dpprofs = {name for cls in _DPPROFS for name in fields(cls)} | (others or {}).keys()
    found: dict[str, OwnOption] = {}
    for one in declaring:
        for name, field in fields(one.options).items() if one.options else ():
            earlier = found.get(name)
            if name in dpprofs or (earlier is not None and not _are_same(earlier.field, field)):
                warnings.warn(f"the option {name} of {one.name} is left out: the name is taken", stacklevel=2)
            else:
                takers = earlier.takers if earlier else ()
                found[name] = OwnOption(field, (*takers, one.name))
    return found


def _are_same(one: "dataclasses.Field[Any]", other: "dataclasses.Field[Any]") -> bool:
    kinds = type(one.default) is type(other.default)
    return kinds and one.default == other.default and dict(one.metadata) == dict(other.metadata)


def parse_own(known: Mapping[str, OwnOption], values: Mapping[str, object]) -> dict[str, OptionValue]:
    """Values of own options, checked by their rules. Raises ConfigError."""
    return {name: parse(known[name].field, value) for name, value in values.items()}


def taken_by(
    takers: Iterable[str], known: Mapping[str, OwnOption], values: Mapping[str, OptionValue]
) -> dict[str, OptionValue]:
    """All own options of the named ones, with their defaults where `values` has none."""
    names = set(map(listed, takers))
    return {
        name: values[name] if name in values else parse(option.field, option.field.default)
        for name, option in known.items()
        if names.intersection(option.takers)
    }


def refuse_untaken(
    takers: Iterable[str], known: Mapping[str, OwnOption], values: Mapping[str, OptionValue]
) -> None:
    """Raises ConfigError for an option that none of the named ones has, unless it has its default."""
    names = set(map(listed, takers))
    for name, value in values.items():
        option = known[name]
        if value != option.field.default and not names.intersection(option.takers):
            raise refuse(name, value, f"only with {' or '.join(option.takers)}")
