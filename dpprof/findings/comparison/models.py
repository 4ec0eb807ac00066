"""Names of the models of a comparison, each of them unique."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from dpprof.config.experiment import ExperimentConfig
from dpprof.config.training import SIZE_FIELDS
from dpprof.findings.comparison.cell import Cell
from dpprof.vocabulary.workloads import BUILT_IN_WORKLOAD

# Settings that change a model's number of parameters, but not its name.
_COUNT_VARIES_WITH = ("seq_len", "attention")
_GROWS = ("trainer", "batch_size", "seq_len")
_EXACT_BELOW = 100_000
K = TypeVar("K")


@dataclass(frozen=True)
class Model:
    """A model of a comparison. `num_parameters` holds several counts if they depend on the sequence.

    `needs_count` says that another model has the same name and settings, but not the same parameters.
    """

    name: str
    num_parameters: tuple[int, ...]
    needs_count: bool = False

    @property
    def label(self) -> str:
        """Name that is unique in the comparison."""
        return self.heading if self.needs_count else self.name

    @property
    def heading(self) -> str:
        """Name with the number of parameters, if known; with all digits if they tell models apart."""
        if not self.num_parameters:
            return self.name
        shown = "{:,}".format if self.needs_count else short_count
        low, high = shown(min(self.num_parameters)), shown(max(self.num_parameters))
        count = low if low == high else f"{low} to {high}"
        return f"{self.name} ({count} parameters)"


def identity(config: ExperimentConfig) -> tuple[object, ...]:
    """Return the settings that identify the model."""
    sizes = (getattr(config, name) for name in SIZE_FIELDS)
    return (config.workload, config.model_size, *sizes, config.train_name)


def distinct_names(configs: Iterable[ExperimentConfig]) -> dict[tuple[object, ...], str]:
    """Return each model's name by its identity, that of its factory and its size where names clash."""
    found = {identity(config): config for config in configs}
    names = {key: config.model_title for key, config in found.items()}
    for with_size in (False, True):
        taken = Counter(names.values())
        for key, config in found.items():
            if config.workload != BUILT_IN_WORKLOAD and taken[names[key]] > 1:
                longer = config.titled(config.workload)
                names[key] = f"{longer} {config.model_size}" if with_size else longer
    return names


def models_of(places: Sequence[Sequence[Cell]]) -> list[Model]:
    """Return the model of each place.

    One set of settings is one model, unless its number of parameters shows that the code differs.
    """
    names = distinct_names(place[0].config for place in places)
    first = [(identity(place[0].config), place[0]) for place in places]
    expected = [(key, *map(cell.settings.get, _COUNT_VARIES_WITH)) for key, cell in first]
    mixed = {found[0] for found, counts in _counts(expected, places).items() if len(counts) > 1}
    groups = [(key, _lineage(cell) if key in mixed else None) for key, cell in first]
    counts = _counts(groups, places)
    return [Model(names[key], tuple(sorted(counts[key, code])), key in mixed) for key, code in groups]


def _counts(keys: Sequence[K], places: Sequence[Sequence[Cell]]) -> dict[K, set[int]]:
    found: dict[K, set[int]] = {key: set() for key in keys}
    for key, place in zip(keys, places, strict=True):
        found[key] |= {cell.num_parameters for cell in place if cell.num_parameters is not None}
    return found


def _lineage(cell: Cell) -> tuple[object, ...]:
    """Return what cells share that differ only in the batch, the sequence and the trainer."""
    return (cell.source, *(value for name, value in cell.settings.items() if name not in _GROWS))


def short_count(num_parameters: int) -> str:
    """Format a number of parameters in billions or millions; small ones keep all digits."""
    if num_parameters < _EXACT_BELOW:
        return f"{num_parameters:,}"
    return f"{num_parameters / 1e9:.2f}B" if num_parameters >= 1e9 else f"{num_parameters / 1e6:.2f}M"
