"""Cells side by side: plain data, and the JSON file that keeps it.

A place is the settings, and the type of the weights, that cells of several trainers share.
"""

import dataclasses
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from dpprof.config.flat import BUDGET, HOW_MEASURED, to_flat, trainers_options
from dpprof.config.training import MODEL_SIZES
from dpprof.errors import DpprofError
from dpprof.findings.comparison.cell import Cell
from dpprof.findings.comparison.models import Model, models_of
from dpprof.findings.comparison.run import Run
from dpprof.json_files import typed
from dpprof.record.figures.names import ratio_name, ratios
from dpprof.record.figures.results import (
    Result,
    describe_precision,
    describe_steps,
    device_name,
    read_results,
)
from dpprof.record.folder import SweepFolder
from dpprof.vocabulary.grouping import grouped
from dpprof.vocabulary.parallel import NONE
from dpprof.vocabulary.trainers import STANDARD, trainer_order
from dpprof.vocabulary.workloads import BUILT_IN_WORKLOAD

SCHEMA_VERSION = 2
# Settings told together, as one phrase.
_OF_RANKS = ("parallel", "world_size")


@dataclass(frozen=True)
class Comparison:
    """Cells in order: by model, then by place, then by trainer."""

    name: str
    cells: list[Cell]

    @property
    def sources(self) -> list[str]:
        """Distinct sources of the cells."""
        return list(dict.fromkeys(cell.source for cell in self.cells))

    @property
    def runs(self) -> list[Run]:
        """The runs of all cells."""
        return [run for cell in self.cells for run in cell.runs]

    @property
    def places(self) -> list[list[Cell]]:
        """The cells of each place."""
        return list(self._by_place.values())

    @cached_property
    def _by_place(self) -> dict[tuple[object, ...], list[Cell]]:
        return grouped(self.cells, self._place)

    def _place(self, cell: Cell) -> tuple[object, ...]:
        return (*_settings_of_place(cell), self.weights_dtype(cell))

    def weights_dtype(self, cell: Cell) -> str:
        """Return the types of a cell's weights; of one that built no model, those of all others there."""
        known = self._weights_known[_settings_of_place(cell)]
        return cell.weights_dtype or (known[0] if len(known) == 1 else "")

    @cached_property
    def _weights_known(self) -> dict[tuple[object, ...], list[str]]:
        places = grouped(self.cells, _settings_of_place).items()
        return {place: sorted({cell.weights_dtype for cell in cells} - {""}) for place, cells in places}

    def precision(self, cell: Cell) -> str:
        """Describe a cell's precision, with the type of the weights."""
        return describe_precision(cell.config, self.weights_dtype(cell))

    @property
    def steps(self) -> str:
        """Description of the steps, for the head of a page; empty without cells."""
        found = list(dict.fromkeys(describe_steps(cell.config) for cell in self.cells))
        return f"Steps follow {'; or '.join(found)}." if found else ""

    def model(self, cell: Cell) -> Model:
        """Return the model that the cell trains."""
        return self._models[self._place(cell)]

    @cached_property
    def _models(self) -> dict[tuple[object, ...], Model]:
        return dict(zip(self._by_place, models_of(self.places), strict=True))

    @cached_property
    def by_model(self) -> dict[Model, list[list[Cell]]]:
        """The places of each model."""
        return grouped(self.places, lambda place: self.model(place[0]))

    @cached_property
    def varying(self) -> list[str]:
        """Settings that differ between the cells that have them, apart from model, batch and sequence."""
        shown = {"trainer", "model_size", "workload", "batch_size", "seq_len", *HOW_MEASURED, *BUDGET}
        shown |= {"vocab_size", "hidden_dim", "num_layers", "num_heads"}
        items = dict.fromkeys(item for cell in self.cells for item in cell.settings.items())
        num_values = Counter(name for name, _ in items)
        return [name for name, number in num_values.items() if number > 1 and name not in shown]

    def place_name(self, cell: Cell, without: str = "") -> str:
        """Name a place among those of its model, without the setting `without`."""
        parts = [self.settings_in_words(cell, without)]
        if cell.is_estimate:
            held_against = device_name(cell.config)
            parts.append(f"estimated for {held_against}" if held_against else "estimated")
        return ", ".join([*parts, cell.source] if len(self.sources) > 1 else parts)

    def settings_in_words(self, cell: Cell, without: str = "") -> str:
        """Describe the settings: `batch 4, sequence 256`, and whatever varies."""
        names = {"batch_size": "batch", "seq_len": "sequence"} | {name: name for name in self.varying}
        named = [name for name in names if name != without and name in cell.settings]
        values = cell.settings | {"precision": self.precision(cell)}
        told = [f"{names[name]} {values[name]}" for name in named if name not in _OF_RANKS]
        if self._weights_vary and "precision" not in named and (weights := self.weights_dtype(cell)):
            told.append(f"weights in {weights}")
        if cell.config.parallel != NONE and without != "world_size":
            told.append(f"{cell.config.world_size} ranks with {cell.config.parallel}")
        return ", ".join(told)

    @cached_property
    def _weights_vary(self) -> bool:
        return len({dtype for known in self._weights_known.values() for dtype in known}) > 1

    def standard(self, cell: Cell) -> Cell | None:
        """Return the finished cell of StandardTrainer at the same place, if there is one."""
        twins = (other for other in self._by_place[self._place(cell)] if other.trainer == STANDARD)
        return next((twin for twin in twins if twin.finished), None)

    def is_disturbed_at(self, cell: Cell) -> bool:
        """Return True if any cell at the same place was disturbed: step times do not compare there."""
        return any(twin.is_disturbed for twin in self._by_place[self._place(cell)])

    def ratios(self, cell: Cell, run: Run | None = None) -> dict[str, float]:
        """Return `vs_standard/...` ratios of a finished cell, or of one run of it, to StandardTrainer's."""
        twin = self.standard(cell)
        if twin is None or not cell.finished:
            return {}
        one = cell if run is None else run
        return ratios(one.figures, twin.figures, one.compared)

    def ratio(self, cell: Cell, metric: str) -> float | None:
        """Return the ratio of one figure to StandardTrainer's, if both finished."""
        return self.ratios(cell).get(ratio_name(metric))

    def to_json(self) -> str:
        """Return the text of `summary.json`."""
        data = {"schema_version": SCHEMA_VERSION} | dataclasses.asdict(self)
        for run in (run for cell in data["cells"] for run in cell["runs"]):
            if run["step"] is None:  # nothing is predicted of most runs
                del run["step"]
        return json.dumps(data, indent=1)

    @classmethod
    def from_data(cls, data: Any) -> Self:
        """Build from the contents of `summary.json`. Raises DpprofError if this version cannot read them."""
        try:
            data = dict(data)
            version = data.pop("schema_version")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DpprofError("it is no comparison that dpprof exported") from error
        if version != SCHEMA_VERSION:
            raise DpprofError(f"it has schema version {str(version)[:20]}, not {SCHEMA_VERSION}")
        found = typed(cls, data)
        if not all(cell.runs for cell in found.cells):
            raise DpprofError("it is no comparison that dpprof exported: a cell has no runs")
        # Completed by settings that an earlier dpprof did not have.
        cells = [dataclasses.replace(cell, settings=to_flat(cell.config)) for cell in found.cells]
        return dataclasses.replace(found, cells=cells)


def compare(name: str, sources: Mapping[str, Iterable[Result]]) -> Comparison:
    """Compare results, given by the name of their source."""
    cells: dict[object, Cell] = {}
    for source, results in sources.items():
        for result in results:
            settings = to_flat(result.config)
            cell = cells.setdefault((source, *settings.items()), Cell(source, settings, []))
            cell.runs.append(Run.from_result(result))
    return Comparison(name, sorted(cells.values(), key=_order))


def merge(comparisons: Iterable[Comparison]) -> Comparison:
    """Merge several comparisons. Sources of one name are taken as one and the same."""
    parts = [comparison for comparison in comparisons if comparison.cells]
    cells = sorted((cell for part in parts for cell in part.cells), key=_order)
    return Comparison(" and ".join(part.name for part in parts), cells)


def _settings_of_place(cell: Cell) -> tuple[object, ...]:
    """Return a cell's source and settings, without the trainer, its own options and the training's length."""
    own = {"trainer", *BUDGET, *trainers_options(cell.config)}
    return (cell.source, *(value for name, value in cell.settings.items() if name not in own))


def _order(cell: Cell) -> tuple[object, ...]:
    settings, sizes, config = cell.settings, list(MODEL_SIZES), cell.config
    size = sizes.index(config.model_size) if config.model_size in sizes else len(sizes)
    factory = "" if config.workload == BUILT_IN_WORKLOAD else config.model_title
    model = (factory, config.workload, size, config.model_title)
    rest = tuple(map(str, _settings_of_place(cell)))
    place = (settings["precision"], settings["seq_len"], settings["batch_size"], cell.source, rest)
    own = tuple(settings[name] for name in sorted(trainers_options(config)))
    return (model, place, trainer_order(cell.trainer), own)


def foreseen_of(sources: Sequence[Path | str], warn: Callable[[str], None]) -> Comparison | None:
    """Return a sweep's estimates of a larger model; None for several sources. Warns of unreadable ones."""
    if len(sources) != 1:
        return None
    sweep = SweepFolder(sources[0])
    results, damaged = read_results((folder.name, folder) for folder in sweep.foreseen.runs())
    for text in damaged:
        warn(f"left out {text}")
    return compare(sweep.name, {sweep.name: results})
