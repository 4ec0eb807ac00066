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


def raise_for_checks(results: Sequence[Result]) -> None:
    """Raise ExperimentsFailed (`fail`) or Undecided (`cannot tell`) if a check or `verify` says so."""
    for verdict in (FAIL, CANNOT_TELL):
        said, kind = ("failed", ExperimentsFailed) if verdict == FAIL else ("could not tell", Undecided)
        judged = [(check, r.name) for r in results for check, v in r.verdicts.items() if v.word == verdict]
        if judged:
            first = judged[0][0]
            names = [name for check, name in judged if check == first]
            counted = f"{len(names)} of {len(results)} experiments"
            raise kind(f"{_SPOKEN[first]} {said} in {counted}: {', '.join(names)}")
