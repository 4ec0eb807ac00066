"""The verdict: every finding that the figures support, or why there is none."""

from dpprof.findings.comparison.cell import Cell
from dpprof.findings.comparison.comparison import Comparison
from dpprof.findings.comparison.intervals import FEWEST_STEPS
from dpprof.findings.comparison.places import full_name
from dpprof.findings.comparison.side_tables import without_paired
from dpprof.findings.sentences import Said, said
from dpprof.findings.verdict.best import best_at_each, choose, fastest_at, rank, smallest_at
from dpprof.findings.verdict.estimates import advise, estimated, fits, waits
from dpprof.findings.verdict.extra import added, savings
from dpprof.findings.verdict.finding import Finding
from dpprof.findings.verdict.largest_batch import shortages
from dpprof.record.figures.names import EXPOSED, EXPOSED_PCT, PEAK, SENDING, SENT, STEP


def verdict(comparison: Comparison, foreseen: Comparison | None = None) -> list[Finding]:
    """Return every finding, the most useful first; `foreseen` are estimates of a larger model.

    Measurements replace estimates of the same experiment, and are the only ones compared if there are any.
    """
    unpaired = without_paired(comparison)
    estimates = [cell for cell in unpaired.cells if cell.is_estimate]
    measured = [cell for cell in unpaired.cells if not cell.is_estimate]
    found = _about_trainers(Comparison(comparison.name, measured or estimates))
    about_estimates = _known(*fits(comparison), estimated(comparison))
    if not found and not about_estimates and not added(unpaired):
        found = [Finding.of(_why_none(unpaired), steps=FEWEST_STEPS)]
    predicted = Comparison(comparison.name, estimates)
    advised = [*advise(predicted), *_known(waits(predicted))]
    if foreseen is not None:
        advised += [*advise(foreseen, is_of_larger=True), *_known(waits(foreseen))]
    found += _known(communications(comparison))
    at = int(bool(found) and found[0].kind.startswith(("use.", "none.")))
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
    )


def _why_none(comparison: Comparison) -> str:
    if not any(cell.finished for cell in comparison.cells):
        return "none.finished"
    several = [place for place in comparison.places if sum(bool(cell.finished) for cell in place) > 1]
    if any(cell.is_disturbed for place in several for cell in place):
        return "none.calm"
    return "none.compared" if several else "none.together"


# By what is known: the predicted time, and what it adds to a measured step.
_COMMUNICATION = {
    (False, False): "communication",
    (True, False): "communication.predicted",
    (False, True): "communication.exposed",
    (True, True): "communication.both",
}


def communications(comparison: Comparison) -> Finding | None:
    """Tell what ranks send in a step, with a point for each place with several ranks; None without any."""
    points, known = [], set()
    for place in comparison.places:
        cells = [cell for cell in place if cell.finished and SENT in cell.figures]
        known |= {name for cell in cells for name in cell.figures}
        if cells:
            where = full_name(comparison, place[0])
            points.append(said("communication.place", place=where, sent=list(map(_sent, cells))))
    kind = _COMMUNICATION[SENDING in known, EXPOSED in known]
    return Finding((said(kind),), tuple(points)) if points else None


def _sent(cell: Cell) -> Said:
    """Tell what a rank sends: of an estimate with the predicted time, else with what it adds to the step."""
    figures = cell.figures
    values = {"mib": figures[SENT], "trainer": cell.trainer}
    if SENDING in figures:
        return said("sent.predicted", ms=figures[SENDING], **values)
    if EXPOSED in figures and EXPOSED_PCT in figures:
        return said("sent.exposed", ms=figures[EXPOSED], pct=figures[EXPOSED_PCT], **values)
    return said("sent", **values)
