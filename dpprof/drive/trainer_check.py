"""Check of every trainer on a machine: a sweep with a verdict for each."""

from dataclasses import dataclass, replace

from dpprof.drive.sweep import Sweep
from dpprof.errors import ExperimentsFailed, Undecided
from dpprof.record.figures.names import PEAK, STEP
from dpprof.record.figures.results import Result, describe
from dpprof.record.figures.verdicts import CANNOT_TELL, FAIL, PASS, VERIFY
from dpprof.tracking.tracker import Summary


@dataclass
class TrainerCheck(Sweep):
    """One small experiment per trainer, to be verified; `kind` is the command, test or verify."""

    kind: str = "test"
    can_be_resumed = False

    @property
    def verdicts(self) -> dict[str, tuple[bool, str]]:
        """For each trainer, whether it passed, with the figures or the reason."""
        return {result.config.trainer: (_word(result) == PASS, describe(result)) for result in self.results}

    def has_failed(self) -> bool:
        """True if any trainer did not pass: these models are too small to run out of memory."""
        return any(_word(result) != PASS for result in self.results)

    def summarize(self) -> Summary:
        """Add to the comparison whether each trainer passed, its step latency and its peak memory."""
        summary = super().summarize()
        if self.interrupted:
            return summary
        figures = dict(summary.figures)
        for result in self.results:
            metrics = result.metrics if result.figures else {}
            found: dict[str, float | None] = {"passed": float(_word(result) == PASS)}
            found["step_ms_median"], found["peak_allocated_mib"] = metrics.get(STEP), metrics.get(PEAK)
            own = f"{self.kind}/{result.config.trainer}"
            figures |= {f"{own}/{name}": value for name, value in found.items() if value is not None}
        return replace(summary, figures=figures)

    def raise_if_failed(self) -> None:
        """Raise an error that names the trainers that failed, else those that could not be verified."""
        for word, error, said in (
            (FAIL, ExperimentsFailed, "failed"),
            (CANNOT_TELL, Undecided, "could not be verified"),
        ):
            trainers = [result.config.trainer for result in self.results if _word(result) == word]
            if trainers:
                counted = f"{len(trainers)} of {len(self.results)} trainers"
                raise error(f"{counted} {said}: {', '.join(trainers)}")


def _word(result: Result) -> str:
    check, record = result.verdicts.get(VERIFY), result.record
    return FAIL if check is None or record is None or record.failed_passes else check.word
