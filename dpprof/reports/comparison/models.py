"""What the models of a comparison are called: no two of them by one name."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from dpprof.config.experiment import ExperimentConfig
from dpprof.config.training import SIZE_FIELDS
from dpprof.vocabulary.workloads import BUILT_IN_WORKLOAD

# What decides how many parameters a model has, beyond what it is called after.
_COUNT_VARIES_WITH = ("seq_len", "attention")
_GROWS = ("trainer", "batch_size", "seq_len")
_EXACT_BELOW = 100_000
K = TypeVar("K")


class Trained(Protocol):
    """What a cell tells of its model."""

    @property
    def source(self) -> str:
        """Where the cell comes from."""

    @property
    def settings(self) -> dict[str, Any]:
        """The experiment's settings."""

    @property
    def config(self) -> ExperimentConfig:
        """The experiment's configuration."""

    @property
    def num_parameters(self) -> int | None:
        """The model's parameters, where they are known."""


@dataclass(frozen=True)
class Model:
    """A model of a comparison. `num_parameters` holds several counts where the sequence decides.

    `needs_count` says that another model has the same name and settings, but not the same parameters.
    """

    name: str
    num_parameters: tuple[int, ...]
    needs_count: bool = False

    @property
    def label(self) -> str:
        """What no other model of the comparison is called."""
        return self.heading if self.needs_count else self.name

    @property
    def heading(self) -> str:
        """The name, with the number of parameters where it is known: all its digits where they tell models
        apart.
        """
        if not self.num_parameters:
            return self.name
        shown = "{:,}".format if self.needs_count else short_count
        low, high = shown(min(self.num_parameters)), shown(max(self.num_parameters))
        count = low if low == high else f"{low} to {high}"
        return f"{self.name} ({count} parameters)"


def identity(config: ExperimentConfig) -> tuple[object, ...]:
    """The settings that say which model it is."""
    sizes = (getattr(config, name) for name in SIZE_FIELDS)
    return (config.workload, config.model_size, *sizes, config.train_name)


def distinct_names(configs: Iterable[ExperimentConfig]) -> dict[tuple[object, ...], str]:
    """The name of each model by its identity: with its module, then its size, where the name is another's."""
    found = {identity(config): config for config in configs}
    names = {key: config.model_name for key, config in found.items()}
    for more in (_with_module, _with_size):
        taken = Counter(names.values())
        for key, config in found.items():
            if config.workload != BUILT_IN_WORKLOAD and taken[names[key]] > 1:
                names[key] = more(names[key], config)
    return names


def _with_module(name: str, config: ExperimentConfig) -> str:
    return f"{config.workload.rpartition(':')[0]}:{name}"


def _with_size(name: str, config: ExperimentConfig) -> str:
    return f"{name} {config.model_size}"


def models_of(places: Sequence[Sequence[Trained]]) -> list[Model]:
    """The model of each place.

    One set of settings is one model, unless its number of parameters shows that the code differs.
    """
    names = distinct_names(place[0].config for place in places)
    keys = [identity(place[0].config) for place in places]
    expected = [
        (key, *map(place[0].settings.get, _COUNT_VARIES_WITH))
        for key, place in zip(keys, places, strict=True)
    ]
    mixed = {found[0] for found, counts in _counts(expected, places).items() if len(counts) > 1}
    groups = [
        (key, _lineage(place[0]) if key in mixed else None) for key, place in zip(keys, places, strict=True)
    ]
    counts = _counts(groups, places)
    return [Model(names[key], tuple(sorted(counts[key, code])), key in mixed) for key, code in groups]


def _counts(keys: Sequence[K], places: Sequence[Sequence[Trained]]) -> dict[K, set[int]]:
    """The numbers of parameters that the places of each key have."""
    found: dict[K, set[int]] = {key: set() for key in keys}
    for key, place in zip(keys, places, strict=True):
        found[key] |= {cell.num_parameters for cell in place if cell.num_parameters is not None}
    return found


def _lineage(cell: Trained) -> tuple[object, ...]:
    """What cells share that differ in the batch, the sequence and the trainer alone."""
    return (cell.source, *(value for name, value in cell.settings.items() if name not in _GROWS))


def short_count(num_parameters: int) -> str:
    """A number of parameters in billions or millions, or all the digits of a small one."""
    if num_parameters < _EXACT_BELOW:
        return f"{num_parameters:,}"
    return f"{num_parameters / 1e9:.2f}B" if num_parameters >= 1e9 else f"{num_parameters / 1e6:.2f}M"
