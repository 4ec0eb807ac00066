"""What estimates advise: with which DP trainer to start, what it needs, and how fast it can be."""

from dataclasses import dataclass, field

from dpprof.figures.results import device_name
from dpprof.reports.comparison.cell import Cell
from dpprof.reports.comparison.comparison import Comparison
from dpprof.reports.comparison.findings.finding import Finding, joined
from dpprof.reports.comparison.places import model_in_words, size_of
from dpprof.vocabulary.formats import memory, milliseconds
from dpprof.vocabulary.trainers import short_name, trainer_info

NEEDED = "memory/needed_mib"
_FLOOR = "floor/step_ms"
_FITS = "memory/fits"


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

    `device` is empty where the estimates are held against none.
    """

    model: str
    device: str
    batch_size: int
    seq_len: int
    options: tuple[Option, ...]
    growth: Growth | None = field(default=None)

    @property
    def best(self) -> Option | None:
        """The trainer that needs the least memory, unless even that does not fit."""
        return self.options[0] if self.options[0].fits is not False else None


def advise(comparison: Comparison) -> list[Advice]:
    """For each model and device what the estimates of two or more DP trainers advise."""
    groups: dict[tuple[str, str], list[list[Cell]]] = {}
    for place in comparison.places:
        cells = [cell for cell in place if _counts(cell)]
        if len(cells) > 1:
            key = model_in_words(comparison, cells[0]), device_name(cells[0].config)
            groups.setdefault(key, []).append(cells)
    return [_advice(comparison, *key, places) for key, places in groups.items()]


def _counts(cell: Cell) -> bool:
    is_private = trainer_info(cell.trainer).is_private
    return cell.is_estimate and is_private and bool(cell.finished) and NEEDED in cell.figures


def _advice(comparison: Comparison, model: str, device: str, places: list[list[Cell]]) -> Advice:
    fitting = [cells for cells in places if any(_fits(cell) is not False for cell in cells)]
    place = max(fitting or places, key=lambda cells: size_of(cells[0]))
    options = sorted(map(_option, place), key=lambda option: option.needed_mib)
    config = place[0].config
    growth = _growth(comparison, place, places)
    return Advice(model, device, config.batch_size, config.seq_len, tuple(options), growth)


def _option(cell: Cell) -> Option:
    return Option(cell.trainer, cell.figures[NEEDED], cell.figures.get(_FLOOR), _fits(cell))


def _fits(cell: Cell) -> bool | None:
    return bool(cell.figures[_FITS]) if _FITS in cell.figures else None


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
    at = f"{advice.model}{on}, batch {advice.batch_size}, sequence {advice.seq_len}"
    told = [f"For {at}, estimates say: {_start(advice)}"]
    if advice.device:
        told.append(_fit(advice.options))
    told.append(_time(advice))
    if advice.growth is not None:
        (first, mib), *others = advice.growth.more_mib.items()
        more = [f"{short_name(first)} needs {memory(mib)} more"]
        more += [f"{short_name(name)} {memory(mib)} more" for name, mib in others]
        told.append(f"From batch {advice.growth.batch} to {advice.growth.larger}, {joined(more)}.")
    return Finding("Estimate", " ".join(text for text in told if text), advice)


def _start(advice: Advice) -> str:
    first, *others = advice.options
    needs = joined([f"{short_name(one.trainer)} {memory(one.needed_mib)}" for one in others])
    if advice.best is None:
        return (
            f"no DP trainer fits. {short_name(first.trainer)} needs the least memory, "
            f"{memory(first.needed_mib)}; {needs}."
        )
    return (
        f"start with {short_name(first.trainer)}. It needs the least memory, {memory(first.needed_mib)}, "
        f"against {needs}."
    )


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


def _time(advice: Advice) -> str:
    """The floors, and which trainers deserve a measurement beside the one to start with."""
    floors = {one.trainer: one.floor_ms for one in advice.options if one.floor_ms is not None}
    if len(floors) < len(advice.options):
        return ""
    each = joined([f"{milliseconds(ms)} with {short_name(trainer)}" for trainer, ms in floors.items()])
    text = f"A step takes at least {each}. These are lower bounds, not predictions."
    best = advice.best
    if best is None or best.floor_ms is None:
        return text
    faster = [
        short_name(one.trainer)
        for one in advice.options
        if one.fits is not False and one.floor_ms is not None and one.floor_ms < best.floor_ms
    ]
    return text + (f" Measure {joined(faster)} too before you choose." if faster else "")
