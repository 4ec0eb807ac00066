"""What the results of a campaign come to: which of them failed, and the error to end with."""

from collections.abc import Iterable, Sequence

from dpprof.errors import ExperimentsFailed, Undecided
from dpprof.figures.gradient_verdict import CANNOT_TELL, FAIL
from dpprof.figures.results import FAILED, Result


def failed_results(results: Iterable[Result]) -> list[Result]:
    """The results that failed for another reason than lack of memory, which is a finding."""
    return [r for r in results if r.status == FAILED and r.failure is not None and r.failure.kind != "oom"]


def results_judged(results: Iterable[Result], verdict: str) -> list[Result]:
    """The results on which the gradient check gave this verdict."""
    return [r for r in results if r.gradient_verdict is not None and r.gradient_verdict.word == verdict]


def raise_for_checks(results: Sequence[Result], verdicts: Iterable[str] = (FAIL, CANNOT_TELL)) -> None:
    """Raise ExperimentsFailed (`fail`) or Undecided (`cannot tell`) if a gradient check says so."""
    for verdict in verdicts:
        names = [result.name for result in results_judged(results, verdict)]
        said, kind = ("failed", ExperimentsFailed) if verdict == FAIL else ("could not tell", Undecided)
        if names:
            counted = f"{len(names)} of {len(results)} experiments"
            raise kind(f"the gradient check {said} in {counted}: {', '.join(names)}")
