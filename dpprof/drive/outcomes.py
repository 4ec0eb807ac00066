"""Failed results of a campaign, and the error to end with."""

from collections.abc import Iterable, Sequence

from dpprof.errors import ExperimentsFailed, Undecided
from dpprof.record.figures.results import FAILED, Result
from dpprof.record.figures.verdicts import CANNOT_TELL, FAIL
from dpprof.record.record import FailureKind

_SPOKEN = {"gradient check": "the gradient check", "verify": "verify"}


def failed_results(results: Iterable[Result]) -> list[Result]:
    """Return the failed results, except those out of memory, which is a finding."""
    return [
        r
        for r in results
        if r.status == FAILED and r.failure is not None and r.failure.kind != FailureKind.OOM
    ]


def results_judged(results: Iterable[Result], verdict: str) -> dict[str, list[Result]]:
    """Return the results with this verdict, by its source: the gradient check or `verify`."""
    judged: dict[str, list[Result]] = {}
    for result in results:
        for name, given in result.verdicts.items():
            if given.word == verdict:
                judged.setdefault(name, []).append(result)
    return judged


def raise_for_checks(results: Sequence[Result], verdicts: Iterable[str] = (FAIL, CANNOT_TELL)) -> None:
    """Raise ExperimentsFailed (`fail`) or Undecided (`cannot tell`) if a check or `verify` says so."""
    for verdict in verdicts:
        said, kind = ("failed", ExperimentsFailed) if verdict == FAIL else ("could not tell", Undecided)
        for name, judged in results_judged(results, verdict).items():
            counted = f"{len(judged)} of {len(results)} experiments"
            raise kind(f"{_SPOKEN[name]} {said} in {counted}: {', '.join(r.name for r in judged)}")
