"""The tiles that open the comparison page: what each trainer takes at one place, and its largest batch."""

from dataclasses import dataclass

from dpprof.config.flat import trainers_options
from dpprof.reports.comparison.cell import Cell
from dpprof.reports.comparison.comparison import Comparison
from dpprof.reports.comparison.data import ComparisonData
from dpprof.reports.comparison.findings.largest_batch import extrapolate
from dpprof.reports.comparison.models import Model
from dpprof.reports.comparison.places import size_of
from dpprof.reports.comparison.rows import ModelRows, PlaceRows, Row
from dpprof.vocabulary.formats import memory


@dataclass(frozen=True)
class Tile:
    """One trainer's row at the place of the tiles, and its largest batch in words; empty if nothing tells."""

    row: Row
    largest_batch: str


@dataclass(frozen=True)
class Tiles:
    """The tiles, the place at which their figures hold, and what the largest batches rest on."""

    model: Model
    place: PlaceRows
    tiles: list[Tile]
    note: str

    @property
    def has_ratios(self) -> bool:
        """Whether any figure is set against StandardTrainer's."""
        return any(bar.ratio is not None for tile in self.tiles for bar in tile.row.bars.values())

    @property
    def longest(self) -> dict[str, float]:
        """The longest bar of each measure."""
        keys = self.tiles[0].row.bars
        return {key: max(tile.row.bars[key].length for tile in self.tiles) or 1.0 for key in keys}


def compute(data: ComparisonData) -> Tiles | None:
    """A tile for each trainer at the place where most of them finished, the largest of several such; None if
    nothing finished anywhere.
    """
    places = [(group, place) for group in data.models for place in group.places]
    if not any(row.cell.finished for _, place in places for row in place.rows):
        return None
    group, place = max(places, key=_tells)
    batches, note = _batches(data.comparison, group, place)
    tiles = [Tile(row, batches.get(row.cell.trainer, "")) for row in place.rows]
    return Tiles(group.model, place, tiles, note)


def _tells(found: tuple[ModelRows, PlaceRows]) -> tuple[int, bool, tuple[int, ...]]:
    """Orders places: by the trainers that finished, then measured before estimated, then by their size."""
    cells = [row.cell for row in found[1].rows]
    num_finished = sum(bool(cell.finished) for cell in cells)
    return num_finished, not cells[0].is_estimate, max(size_of(cell) for cell in cells)


def _batches(comparison: Comparison, group: ModelRows, place: PlaceRows) -> tuple[dict[str, str], str]:
    """The largest batch of the model for each trainer, as far as some ran out of memory or lines can be
    extended.
    """
    found = _that_ran_out(group, place)
    if found:
        return found, "Largest batch: the largest that fitted of those tried, with otherwise equal settings."
    of_model = [cell for cell in comparison.cells if comparison.model(cell) == group.model]
    reached = extrapolate(Comparison(comparison.name, of_model))
    if reached is None:
        return {}, ""
    note = (
        f"Largest batch: for {group.model.label}, {reached.place}, from lines through the measured peaks, "
        f"extended to this device's {memory(reached.limit_mib)}. Extrapolated, not measured."
    )
    return {reach.trainer: f"at most about {reach.batch:,}" for reach in reached.reaches}, note


def _that_ran_out(group: ModelRows, place: PlaceRows) -> dict[str, str]:
    """Which batches fit, by trainer, if memory ran out at a place that differs in the batch alone."""
    series = [row.cell for other in group.places if _differ_in_batch(place, other) for row in other.rows]
    if not any(cell.failure == "oom" for cell in series):
        return {}
    trainers = dict.fromkeys(cell.trainer for cell in series)
    return {trainer: _fitted([cell for cell in series if cell.trainer == trainer]) for trainer in trainers}


def _differ_in_batch(place: PlaceRows, other: PlaceRows) -> bool:
    one, two = place.rows[0].cell, other.rows[0].cell
    left_out = {"trainer", "batch_size", *trainers_options(one.config)}
    return one.source == two.source and all(
        two.settings.get(name) == value for name, value in one.settings.items() if name not in left_out
    )


def _fitted(cells: list[Cell]) -> str:
    fitting = [cell.config.batch_size for cell in cells if cell.finished]
    lacking = [cell.config.batch_size for cell in cells if cell.failure == "oom"]
    if not lacking:
        return f"{max(fitting):,} or more" if fitting else ""
    return f"{max(fitting):,}; {min(lacking):,} runs out" if fitting else f"below {min(lacking):,}"
