"""What estimates advise: with which DP trainer to start, what it needs, and how fast it can be."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from dpprof.figures.names import FITS, FLOOR, NEEDED
from dpprof.figures.results import device_name
from dpprof.reports.comparison.cell import Cell, competing
from dpprof.reports.comparison.comparison import Comparison
from dpprof.reports.comparison.findings.finding import Finding
from dpprof.reports.comparison.places import model_in_words, size_of
from dpprof.vocabulary.formats import joined, memory, milliseconds
from dpprof.vocabulary.trainers import short_name


@dataclass(frozen=True)
class Option:
    """A DP trainer on the device. `floor_ms` and `fits` are None where nothing tells."""

    trainer: str
    needed_mib: float
    floor_ms: float | None
    fits: bool | None


@dataclass(frozen=True)
class Growth:
    """How much more each trainer needs, in MiB, at the `larger` of two batches."""

    batch: int
    larger: int
    more_mib: dict[str, float]


@dataclass(frozen=True)
class Advice:
    """The DP trainers at the largest place where one of them fits, the least memory first.

    `settings` are the place's in words. `device` is empty where the estimates are held against none.
    `is_of_larger` says that the model is a larger one than those compared.
    """

    model: str
    device: str
    batch_size: int
    settings: str
    options: tuple[Option, ...]
    growth: Growth | None = field(default=None)
    is_of_larger: bool = False

    @property
    def smallest(self) -> Option | None:
        """The trainer that needs the least memory, unless even that does not fit."""
        return self.options[0] if self.options[0].fits is not False else None

    @property
    def start(self) -> Option | None:
        """The trainer to start with: the lowest bound of the time among those that fit, or the least memory
        where there are no bounds. None if none fits.
        """
        fitting = [(one.floor_ms, one) for one in self.options if one.fits and one.floor_ms is not None]
        if not fitting or any(one.floor_ms is None for one in self.options):
            return self.smallest
        return min(fitting, key=lambda pair: pair[0])[1]


def advise(comparison: Comparison, *, is_of_larger: bool = False) -> list[Advice]:
    """For each model and device what the estimates of two or more DP trainers advise."""
    groups: dict[tuple[str, str], list[list[Cell]]] = {}
    for place in comparison.places:
        cells = competing([cell for cell in place if cell.is_estimate], NEEDED)
        if len(cells) > 1:
            key = model_in_words(comparison, cells[0]), device_name(cells[0].config)
            groups.setdefault(key, []).append(cells)
    found = [_advice(comparison, *key, places) for key, places in groups.items()]
    return [replace(advice, is_of_larger=is_of_larger) for advice in found]


def _advice(comparison: Comparison, model: str, device: str, places: list[list[Cell]]) -> Advice:
    fitting = [cells for cells in places if any(_fits(cell) is not False for cell in cells)]
    place = max(fitting or places, key=lambda cells: size_of(cells[0]))
    options = map(_option, place)
    growth = _growth(comparison, place, places)
    settings = comparison.settings_in_words(place[0])
    return Advice(model, device, place[0].config.batch_size, settings, tuple(options), growth)


def _option(cell: Cell) -> Option:
    return Option(cell.trainer, cell.figures[NEEDED], cell.figures.get(FLOOR), _fits(cell))


def _fits(cell: Cell) -> bool | None:
    return bool(cell.figures[FITS]) if FITS in cell.figures else None


def _growth(comparison: Comparison, place: list[Cell], places: list[list[Cell]]) -> Growth | None:
    """Against the nearest batch under the same settings otherwise."""

    def name(cells: list[Cell]) -> str:
        return comparison.place_name(cells[0], without="batch_size")

    def batch(cells: list[Cell]) -> int:
        return cells[0].config.batch_size

    others = [cells for cells in places if name(cells) == name(place) and batch(cells) != batch(place)]
    if not others:
        return None
    nearest = min(others, key=lambda cells: abs(batch(cells) - batch(place)))
    less, more = sorted((nearest, place), key=batch)
    before = {cell.trainer: cell.figures[NEEDED] for cell in less}
    added = {c.trainer: c.figures[NEEDED] - before[c.trainer] for c in more if c.trainer in before}
    return Growth(batch(less), batch(more), added)


def say(advice: Advice) -> Finding[Advice]:
    """The advice in a few sentences."""
    on = f" on {advice.device}" if advice.device else ""
    larger = "a larger model, " if advice.is_of_larger else ""
    told = [f"For {larger}{advice.model}{on}, {advice.settings}, estimates say: {_start(advice)}"]
    if advice.device:
        told.append(_fit(advice.options))
    if advice.growth is not None:
        (first, mib), *others = advice.growth.more_mib.items()
        more = [f"{short_name(first)} needs {memory(mib)} more"]
        more += [f"{short_name(name)} {memory(mib)} more" for name, mib in others]
        told.append(f"From batch {advice.growth.batch} to {advice.growth.larger}, {joined(more)}.")
    return Finding("Estimate", " ".join(text for text in told if text), advice)


def _start(advice: Advice) -> str:
    """The trainer to start with, and why; the one that needs the least memory, if it is another."""
    start, first = advice.start, advice.options[0]
    least = f"needs the least memory, {_against(advice.options, _memory)}"
    if start is None:
        return f"no DP trainer fits. {short_name(first.trainer)} {least}."
    timed = sorted(advice.options, key=lambda one: one.floor_ms or 0.0)
    bounds = f"{_against(timed, _floor)}: a bound, not a prediction."
    has_bounds = all(one.floor_ms is not None for one in advice.options)
    if start is first:
        text = f"start with {short_name(first.trainer)}. It {least}."
        return f"{text} A step takes at least {bounds}" if has_bounds else text
    return (
        f"start with {short_name(start.trainer)}. It fits, and a step takes at least {bounds} For larger "
        f"batches, {short_name(first.trainer)} {least}. Measure both."
    )


def _against(options: Sequence[Option], figure: Callable[[Option], str]) -> str:
    """A figure of the first against those of the others."""
    first, *others = options
    named = [f"{short_name(one.trainer)} {figure(one)}" for one in others]
    return f"{figure(first)} against {joined(named)}"


def _memory(option: Option) -> str:
    return memory(option.needed_mib)


def _floor(option: Option) -> str:
    return milliseconds(option.floor_ms or 0.0)


def _fit(options: tuple[Option, ...]) -> str:
    fitting = [short_name(one.trainer) for one in options if one.fits]
    lacking = [short_name(one.trainer) for one in options if one.fits is False]
    unclear = [short_name(one.trainer) for one in options if one.fits is None]
    if len(fitting) == len(options):
        return "All fit."
    if len(lacking) == len(options):
        return ""
    told = [f"{joined(lacking)} {'does' if len(lacking) == 1 else 'do'} not fit"] if lacking else []
    told += [f"{joined(unclear)} may or may not fit"] if unclear else []
    return f"{'; '.join(told)}."
