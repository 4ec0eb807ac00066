"""Estimates in a comparison: what they rest on, what fits, what waits, and with which trainer to start."""

from collections.abc import Callable, Iterator, Sequence
from itertools import starmap

from dpprof.findings.closeness import all_known, elsewhere
from dpprof.findings.comparison.cell import Cell, competing
from dpprof.findings.comparison.comparison import Comparison
from dpprof.findings.comparison.places import full_name, model_in_words, size_of
from dpprof.findings.comparison.run import Run
from dpprof.findings.comparison.side_tables import without_paired
from dpprof.findings.launch_bound import LARGER_BATCH, PredictedStep, launch_bound
from dpprof.findings.verdict.finding import Finding
from dpprof.record.figures.capacity import doubt_words
from dpprof.record.figures.names import NEEDED, PREDICTED, PREDICTIONS
from dpprof.record.figures.results import device_name
from dpprof.vocabulary.formats import joined, listed, memory, milliseconds, number
from dpprof.vocabulary.grouping import grouped
from dpprof.vocabulary.trainers import short_name


def estimated(comparison: Comparison) -> Finding | None:
    """Say what was not run, with a point for each thing that the estimates rest on; None if nothing was."""
    cells, total = _estimated_cells(comparison), len(comparison.cells)
    if not cells:
        return None
    count = f"{len(cells)} of {total} experiments were not run" if len(cells) < total else "Nothing was run"
    text = f"{count}: the figures come from fake tensors, which have shapes but no data."
    if total > len(without_paired(comparison).cells):
        text += " Where an experiment was measured too, the measurement counts."
    rests_on = _rests_on([run for cell in cells for run in cell.finished])
    if rests_on:
        text += " The estimates rest on these assumptions:"
    return Finding("Estimated", text, [f"{t[0].upper()}{t[1:]}." for t in rests_on], explains=True)


def fits(comparison: Comparison) -> Iterator[Finding]:
    """Say for each device whether it holds the experiments estimated for it."""
    cells = [cell for cell in _estimated_cells(comparison) if cell.is_held]
    for device, held in grouped(cells, lambda cell: device_name(cell.config)).items():
        if all(cell.fits for cell in held):
            all_of_them = f"All {len(held)} experiments fit" if len(held) > 1 else "The experiment fits"
            yield Finding("Fits", f"{all_of_them} {device}, as estimated.")
        for fits, do_not, why in ((False, "do not", ""), (None, "may or may not", ", as parts are in doubt")):
            if found := [cell for cell in held if cell.fits is fits]:
                said = f"{len(found)} of {len(held)} {do_not} fit {device}{why}"
                needs = [
                    f"{short_name(c.trainer)} at {full_name(comparison, c)} ({_memory(c)})" for c in found
                ]
                yield Finding("Fits", f"{said}: {listed(needs, 6)}.")


def waits(comparison: Comparison) -> Finding | None:
    """Say where steps are launch-bound, and what helps where the wait is the longest; None if nowhere."""
    waiting = [
        (step.bound.host, i)
        for i, place in enumerate(comparison.places)
        for step in _predicted(place)
        if step.bound.is_launch_bound
    ]
    if not waiting:
        return None
    place, num_others = comparison.places[max(waiting)[1]], len({i for _, i in waiting}) - 1
    where = f"at {full_name(comparison, place[0])}, "
    where += f"and likewise at {num_others} other place{'s' * (num_others > 1)}, " if num_others else ""
    fitting = [cell for cell in place if cell.fits is not False]
    fastest = next(iter(_predicted(competing(fitting, PREDICTED))), None)
    return launch_bound(_predicted(place), where, LARGER_BATCH if fitting else "", fastest)


def _predicted(cells: Sequence[Cell]) -> list[PredictedStep]:
    return [PredictedStep(c.config, c.step) for c in cells if c.step is not None and c.step.bound is not None]


def _estimated_cells(comparison: Comparison) -> list[Cell]:
    return [cell for cell in comparison.cells if cell.is_estimate and cell.finished]


def _rests_on(runs: list[Run]) -> list[str]:
    """Return what some estimates rest on, without repeats; each doubt with its largest size."""
    doubts: dict[str, int | None] = {}
    for run in runs:
        for text, num_bytes in run.doubts.items():
            known = doubts.get(text, 0)
            doubts[text] = None if num_bytes is None or known is None else max(known, num_bytes)
    texts = [text for run in runs for text in run.assumptions]
    return list(dict.fromkeys([*texts, *starmap(doubt_words, doubts.items())]))


def advise(comparison: Comparison, *, is_of_larger: bool = False) -> list[Finding]:
    """Advise for each model and device with estimates of two or more DP trainers.

    `is_of_larger`: the model is larger than those compared.
    """
    found = [competing([c for c in place if c.is_estimate], NEEDED) for place in comparison.places]
    groups = grouped(
        [cells for cells in found if len(cells) > 1],
        lambda cells: (model_in_words(comparison, cells[0]), device_name(cells[0].config)),
    )
    larger = "a larger model, " if is_of_larger else ""
    return [
        _advice(comparison, f"{larger}{model}", device, places) for (model, device), places in groups.items()
    ]


def _advice(comparison: Comparison, model: str, device: str, places: list[list[Cell]]) -> Finding:
    """Advise at the largest place where a trainer fits; a place's cells come with the least memory first."""
    fitting = [cells for cells in places if any(cell.fits is not False for cell in cells)]
    cells = max(fitting or places, key=lambda cells: size_of(cells[0]))
    on = f" on {device}" if device else ""
    settings = comparison.settings_in_words(cells[0])
    told = [f"For {model}{on}, {settings}, estimates say: {_start(cells)}"]
    told += [_fit(cells) if device else "", _growth(comparison, cells, places)]
    return Finding("Estimate", " ".join(text for text in told if text))


def _start(cells: list[Cell]) -> str:
    """Name the trainer to start with and why, and the one with the least memory if it is another."""
    alike = [cell for cell in cells if _memory(cell) == _memory(cells[0])]
    first = min(alike, key=lambda cell: elsewhere(cell.trainer))
    is_timed = all(PREDICTED in cell.figures for cell in cells)
    cells = [first, *(cell for cell in cells if cell is not first)]
    least = f"needs the least memory, {_against(cells, _memory)}"
    if all_known(cell.trainer for cell in alike):
        least += " (of those alike, it was the fastest where all were measured, on a CPU)"
    timed = sorted(cells, key=lambda cell: cell.figures.get(PREDICTED, 0.0))
    start = next((cell for cell in timed if is_timed and cell.fits), first)
    if start is first and first.fits is False:
        return f"no DP trainer fits. {short_name(first.trainer)} {least}."
    others = [cell for cell in timed if cell is not start]
    times = f"{_against([start, *others], _time)}: predicted."
    if start is first:
        text = f"start with {short_name(first.trainer)}. It {least}."
        return f"{text} A step takes {times}" if is_timed else text
    return (
        f"start with {short_name(start.trainer)}. It fits, and a step takes {times} For larger "
        f"batches, {short_name(first.trainer)} {least}. Measure both."
    )


def _against(cells: Sequence[Cell], figure: Callable[[Cell], str]) -> str:
    """Compare the figure of the first with those of the others."""
    first, *others = cells
    return f"{figure(first)} against {joined([f'{short_name(c.trainer)} {figure(c)}' for c in others])}"


def _memory(cell: Cell) -> str:
    return memory(cell.figures[NEEDED])


def _time(cell: Cell) -> str:
    least, most = (cell.figures.get(name, 0.0) for name in PREDICTIONS[1:])
    return f"{number(least)} to {milliseconds(most)}"


def _fit(cells: list[Cell]) -> str:
    fitting, lacking, unclear = (
        [short_name(cell.trainer) for cell in cells if cell.fits is answer] for answer in (True, False, None)
    )
    if len(fitting) == len(cells):
        return "All fit."
    if len(lacking) == len(cells):
        return ""
    told = [f"{joined(lacking)} {'does' if len(lacking) == 1 else 'do'} not fit"] if lacking else []
    told += [f"{joined(unclear)} may or may not fit"] if unclear else []
    return f"{'; '.join(told)}."


def _growth(comparison: Comparison, place: list[Cell], places: list[list[Cell]]) -> str:
    """Compare with the nearest batch under otherwise equal settings."""
    without = [comparison.place_name(cells[0], without="batch_size") for cells in (place, *places)]
    size = place[0].config.batch_size
    others = [cells for cells, name in zip(places, without[1:], strict=True) if name == without[0]]
    others = [cells for cells in others if cells[0].config.batch_size != size]
    if not others:
        return ""
    nearest = min(others, key=lambda cells: abs(cells[0].config.batch_size - size))
    less, more = sorted((nearest, place), key=lambda cells: cells[0].config.batch_size)
    before = {cell.trainer: cell.figures[NEEDED] for cell in less}
    added = {
        short_name(c.trainer): c.figures[NEEDED] - before[c.trainer] for c in more if c.trainer in before
    }
    told = [
        f"{name} {'' if i else 'needs '}{memory(mib)} more" for i, (name, mib) in enumerate(added.items())
    ]
    return f"From batch {less[0].config.batch_size} to {more[0].config.batch_size}, {joined(told)}."
