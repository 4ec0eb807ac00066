"""Whether every trainer works on a machine, and trains as it should: a sweep with a verdict each."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from dpprof.drive.logbook import Summary
from dpprof.drive.sweep import Sweep
from dpprof.errors import ExperimentsFailed, Undecided
from dpprof.figures.gradient_verdict import CANNOT_TELL, PASS
from dpprof.figures.names import PEAK, STEP
from dpprof.figures.results import Result, describe


@dataclass
class TrainerCheck(Sweep):
    """One small experiment for each trainer, which is verified; `kind` is the command, test or verify."""

    kind: str = "test"
    can_be_resumed = False

    @property
    def verdicts(self) -> dict[str, tuple[bool, str]]:
        """For each trainer whether it passed, and the figures or the reason."""
        return {result.config.trainer: verdict(result) for result in self.results}

    @property
    def failed_trainers(self) -> list[str]:
        """The trainers that did not pass."""
        return [trainer for trainer, (passed, _) in self.verdicts.items() if not passed]

    @property
    def undecided_trainers(self) -> list[str]:
        """Those of them that verifying did not fail, but could not tell."""
        undecided = {
            result.config.trainer
            for result in self.results
            if (found := result.verify_verdict) is not None
            and found.word == CANNOT_TELL
            and not (result.record is not None and result.record.failed_passes)
        }
        return [trainer for trainer in self.failed_trainers if trainer in undecided]

    def has_failed(self) -> bool:
        """A trainer failed, for whatever reason: the models are too small to run out of memory."""
        return bool(self.failed_trainers)

    def summarize(self) -> Summary:
        """The comparison, with the outcome of every trainer."""
        summary = super().summarize()
        return (
            summary
            if self.interrupted
            else replace(summary, figures={**summary.figures, **outcomes(self.results, self.kind)})
        )

    def raise_for_end(self) -> None:
        """Stopped, or failed."""
        if self.failed_trainers and not self.interrupted:
            undecided = self.undecided_trainers
            failed = [trainer for trainer in self.failed_trainers if trainer not in undecided]
            names, said = failed or undecided, "failed" if failed else "could not be verified"
            error = ExperimentsFailed if failed else Undecided
            raise error(f"{len(names)} of {len(self.verdicts)} trainers {said}: {', '.join(names)}")
        super().raise_for_end()


def outcomes(results: Iterable[Result], kind: str = "test") -> dict[str, float]:
    """For the parent run: whether each trainer passed, its step latency and its peak memory."""
    found: dict[str, float] = {}
    for result in results:
        trainer = result.config.trainer
        found[f"{kind}/{trainer}/passed"] = float(verdict(result)[0])
        metrics = result.metrics if result.figures else {}
        for name, metric in (("step_ms_median", STEP), ("peak_allocated_mib", PEAK)):
            if metric in metrics:
                found[f"{kind}/{trainer}/{name}"] = metrics[metric]
    return found


def verdict(result: Result) -> tuple[bool, str]:
    """Whether a trainer passed, and the figures or the reason."""
    check, record = result.verify_verdict, result.record
    has_passed = check is not None and check.word == PASS
    return has_passed and record is not None and not record.failed_passes, describe(result)
