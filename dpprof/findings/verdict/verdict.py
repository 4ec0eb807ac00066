"""The verdict: every finding that the figures support, or why there is none."""

from dpprof.findings.comparison.cell import Cell
from dpprof.findings.comparison.comparison import Comparison
from dpprof.findings.comparison.intervals import FEWEST_STEPS
from dpprof.findings.comparison.places import full_name
from dpprof.findings.comparison.side_tables import without_paired
from dpprof.findings.verdict.best import USE, best_at_each, choose, fastest_at, rank, smallest_at
from dpprof.findings.verdict.estimates import advise, estimated, fits, waits
from dpprof.findings.verdict.extra import extras, savings
from dpprof.findings.verdict.finding import Finding
from dpprof.findings.verdict.largest_batch import shortages
from dpprof.record.figures.names import EXPOSED, EXPOSED_PCT, PEAK, SENDING, SENT, STEP
from dpprof.vocabulary.formats import memory, milliseconds
from dpprof.vocabulary.trainers import short_name

NO_VERDICT = "No verdict"
NOTHING_FINISHED = "No experiment finished."
DISTURBED = "Only step times were measured, and they were disturbed."
TOO_LITTLE = (
    "Too little was measured to set trainers against each other: it takes peaks (passes=clean,memory) or "
    f"{FEWEST_STEPS} timed steps."
)
NO_TWO_TRAINERS = "Nothing here was measured with two trainers under the same settings."


def verdict(comparison: Comparison, foreseen: Comparison | None = None) -> list[Finding]:
    """Return every finding, the most useful first; `foreseen` are estimates of a larger model.

    Measurements replace estimates of the same experiment, and are the only ones compared if there are any.
    """
    unpaired = without_paired(comparison)
    estimates = [cell for cell in unpaired.cells if cell.is_estimate]
    measured = [cell for cell in unpaired.cells if not cell.is_estimate]
    found = _about_trainers(Comparison(comparison.name, measured or estimates))
    about_estimates = _known(*fits(comparison), estimated(comparison))
    if not found and not about_estimates:
        found = [Finding(NO_VERDICT, _why_none(unpaired))]
    predicted = Comparison(comparison.name, estimates)
    advised = [*advise(predicted), *_known(waits(predicted))]
    if foreseen is not None:
        advised += [*advise(foreseen, is_of_larger=True), *_known(waits(foreseen))]
    found += _known(communications(comparison))
    at = int(bool(found) and found[0].topic in (USE, NO_VERDICT))
    found[at:at] = [*advised, *about_estimates]
    return found


def _known(*findings: Finding | None) -> list[Finding]:
    return [finding for finding in findings if finding is not None]


def _about_trainers(comparison: Comparison) -> list[Finding]:
    calm = [place for place in comparison.places if not comparison.is_disturbed_at(place[0])]
    fastest = best_at_each(comparison.places, fastest_at)
    smallest = best_at_each(comparison.places, smallest_at)
    return _known(
        choose(comparison, fastest, best_at_each(calm, smallest_at)),
        rank(comparison, fastest, STEP),
        rank(comparison, smallest, PEAK),
        savings(comparison),
        shortages(comparison),
        *extras(comparison),
    )


def _why_none(comparison: Comparison) -> str:
    if not any(cell.finished for cell in comparison.cells):
        return NOTHING_FINISHED
    several = [place for place in comparison.places if sum(bool(cell.finished) for cell in place) > 1]
    if any(cell.is_disturbed for place in several for cell in place):
        return DISTURBED
    return TOO_LITTLE if several else NO_TWO_TRAINERS


def communications(comparison: Comparison) -> Finding | None:
    """Tell what ranks send in a step, with a point for each place with several ranks; None without any."""
    sending = [
        (place[0], [cell for cell in place if cell.finished and SENT in cell.figures])
        for place in comparison.places
    ]
    points = [
        f"{full_name(comparison, first)}: {', '.join(map(_sent, cells))}."
        for first, cells in sending
        if cells
    ]
    known = {name for _, cells in sending for cell in cells for name in cell.figures}
    text = "What each rank sends to others in a step"
    if SENDING in known:
        text += ", and the time that this is predicted to take"
    if EXPOSED in known:
        text += ", and how much longer the step takes than alone"
    return Finding("Communication", f"{text}:", points) if points else None


def _sent(cell: Cell) -> str:
    """Tell what a rank sends: of an estimate with the predicted time, else with what it adds to the step."""
    figures = cell.figures
    text = f"{memory(figures[SENT])} with {short_name(cell.trainer)}"
    if SENDING in figures:
        return f"{text} ({milliseconds(figures[SENDING])})"
    if EXPOSED in figures and EXPOSED_PCT in figures:
        exposed = milliseconds(figures[EXPOSED])
        return f"{text} ({exposed} exposed, {figures[EXPOSED_PCT]:.0f} % of the step)"
    return text
