"""Estimates in a comparison: what they rest on, what fits, what waits, and with which trainer to start."""

from collections.abc import Iterator, Sequence
from itertools import starmap

from dpprof.findings.closeness import all_known, elsewhere
from dpprof.findings.comparison.cell import Cell, competing
from dpprof.findings.comparison.comparison import Comparison
from dpprof.findings.comparison.places import full_name, model_in_words, size_of
from dpprof.findings.comparison.run import Run
from dpprof.findings.comparison.side_tables import without_paired
from dpprof.findings.launch_bound import LARGER_BATCH, PredictedStep, launch_bound
from dpprof.findings.sentences import Said, said
from dpprof.findings.verdict.finding import Finding
from dpprof.record.figures.capacity import doubt_words
from dpprof.record.figures.names import NEEDED, PREDICTED, PREDICTIONS
from dpprof.record.figures.results import device_name
from dpprof.vocabulary.formats import memory, milliseconds, number
from dpprof.vocabulary.grouping import grouped


def estimated(comparison: Comparison) -> Finding | None:
    """Say what was not run, with a point for each thing that the estimates rest on; None if nothing was."""
    cells, total = _estimated_cells(comparison), len(comparison.cells)
    if not cells:
        return None
    told = [said("estimated.some" if len(cells) < total else "estimated", number=len(cells), total=total)]
    if total > len(without_paired(comparison).cells):
        told.append(said("estimated.measured_too"))
    rests_on = _rests_on([run for cell in cells for run in cell.finished])
    told += [said("estimated.rests_on")] if rests_on else []
    return Finding(tuple(told), tuple(said("assumed", text=f"{t[0].upper()}{t[1:]}") for t in rests_on))


def fits(comparison: Comparison) -> Iterator[Finding]:
    """Say for each device whether it holds the experiments estimated for it."""
    cells = [cell for cell in _estimated_cells(comparison) if cell.is_held]
    for device, held in grouped(cells, lambda cell: device_name(cell.config)).items():
        values = {"device": device, "total": len(held)}
        if all(cell.fits for cell in held):
            yield Finding.of("fits.all" if len(held) > 1 else "fits.one", number=len(held), **values)
        for fits, kind in ((False, "fits.not"), (None, "fits.unclear")):
            if found := [cell for cell in held if cell.fits is fits]:
                needs = [
                    said("needs", trainer=c.trainer, place=full_name(comparison, c), mib=c.figures[NEEDED])
                    for c in found
                ]
                is_one = fits is False and len(found) == 1
                kind = "fits.not_one" if is_one else kind
                yield Finding.of(kind, number=len(found), needs=needs, **values)


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
    place, others = comparison.places[max(waiting)[1]], len({i for _, i in waiting}) - 1
    fitting = [cell for cell in place if cell.fits is not False]
    fastest = next(iter(_predicted(competing(fitting, PREDICTED))), None)
    where = full_name(comparison, place[0])
    larger = LARGER_BATCH if fitting else None
    return launch_bound(_predicted(place), larger, fastest, place=where, others=others)


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
    return [
        _advice(comparison, model, device, places, is_of_larger) for (model, device), places in groups.items()
    ]


def _advice(
    comparison: Comparison, model: str, device: str, places: list[list[Cell]], is_of_larger: bool
) -> Finding:
    """Advise at the largest place where a trainer fits; a place's cells come with the least memory first."""
    fitting = [cells for cells in places if any(cell.fits is not False for cell in cells)]
    cells = max(fitting or places, key=lambda cells: size_of(cells[0]))
    first = said(
        "estimate.on_device" if device else "estimate",
        larger="a larger model, " if is_of_larger else "",
        model=model,
        device=device,
        settings=comparison.settings_in_words(cells[0]),
        start=_start(cells),
    )
    return Finding((first, *(_fit(cells) if device else ()), *_growth(comparison, cells, places)))


def _start(cells: list[Cell]) -> Said:
    """Name the trainer to start with and why, and the one with the least memory if it is another."""
    alike = [cell for cell in cells if memory(cell.figures[NEEDED]) == memory(cells[0].figures[NEEDED])]
    first = min(alike, key=lambda cell: elsewhere(cell.trainer))
    is_timed = all(PREDICTED in cell.figures for cell in cells)
    cells = [first, *(cell for cell in cells if cell is not first)]
    least = said(
        "least.of_those_alike" if all_known(cell.trainer for cell in alike) else "least",
        mib=first.figures[NEEDED],
        others=[said("memory_of", trainer=c.trainer, mib=c.figures[NEEDED]) for c in cells[1:]],
    )
    timed = sorted(cells, key=lambda cell: cell.figures.get(PREDICTED, 0.0))
    start = next((cell for cell in timed if is_timed and cell.fits), first)
    if start is first and first.fits is False:
        return said("start.none_fits", trainer=first.trainer, least=least)
    others = [said("time_of", trainer=cell.trainer, time=_time(cell)) for cell in timed if cell is not start]
    kind = "start.faster" if start is not first else "start.timed" if is_timed else "start"
    values = {"least": least, "smallest": first.trainer, "time": _time(start), "others": others}
    return said(kind, trainer=start.trainer, **values)


def _time(cell: Cell) -> str:
    least, most = (cell.figures.get(name, 0.0) for name in PREDICTIONS[1:])
    return f"{number(least)} to {milliseconds(most)}"


def _fit(cells: list[Cell]) -> list[Said]:
    """Say which of some cells fit; nothing if none does, which is said before."""
    lacking, unclear = ([cell.trainer for cell in cells if cell.fits is fits] for fits in (False, None))
    if len(lacking) == len(cells):
        return []
    if not lacking and not unclear:
        return [said("fitting.all")]
    found = [said("fitting.not" if lacking[1:] else "fitting.not_one", trainers=lacking)] if lacking else []
    return [*found, *([said("fitting.unclear", trainers=unclear)] if unclear else [])]


def _growth(comparison: Comparison, place: list[Cell], places: list[list[Cell]]) -> list[Said]:
    """Compare with the nearest batch under otherwise equal settings; nothing without one."""
    without = [comparison.place_name(cells[0], without="batch_size") for cells in (place, *places)]
    size = place[0].config.batch_size
    others = [cells for cells, name in zip(places, without[1:], strict=True) if name == without[0]]
    others = [cells for cells in others if cells[0].config.batch_size != size]
    if not others:
        return []
    nearest = min(others, key=lambda cells: abs(cells[0].config.batch_size - size))
    less, more = sorted((nearest, place), key=lambda cells: cells[0].config.batch_size)
    before = {cell.trainer: cell.figures[NEEDED] for cell in less}
    added = [
        said("growth.of", trainer=c.trainer, mib=c.figures[NEEDED] - before[c.trainer])
        for c in more
        if c.trainer in before
    ]
    return [said("growth", less=less[0].config.batch_size, more=more[0].config.batch_size, added=added)]
