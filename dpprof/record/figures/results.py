"""The outcome of a run folder's experiment, read from the folder alone."""

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from dpprof.config.experiment import ExperimentConfig
from dpprof.errors import DpprofError
from dpprof.json_files import naming
from dpprof.record.figures.capacity import capacity_bytes
from dpprof.record.figures.cost import Estimated
from dpprof.record.figures.estimate import EstimateFigures, fit_sentence, time_range
from dpprof.record.figures.figures import Figures
from dpprof.record.figures.ledger import UNTRACKED
from dpprof.record.figures.names import Metric, memory_metrics, metrics, named, plan_metrics
from dpprof.record.figures.privacy import headline
from dpprof.record.figures.step import LogicalStep
from dpprof.record.figures.verdicts import CANNOT_TELL, FAIL, PASS, VERIFY, Verdict, verdicts
from dpprof.record.folder import RunFolder
from dpprof.record.record import Failure, FailureKind, PassStatus, Predicted, Record
from dpprof.vocabulary.formats import memory, milliseconds, size
from dpprof.vocabulary.loops import LOOP_NAMES
from dpprof.vocabulary.precision import precision_in_words
from dpprof.vocabulary.trainers import OWN_LOOP
from dpprof.vocabulary.units import mib, ms

FINISHED, FAILED, KILLED = "FINISHED", "FAILED", "KILLED"
_NO_ANSWER = "it left no answer: dpprof itself was stopped while it ran"


@dataclass(frozen=True)
class Result:
    """Outcome of one experiment: a record, a failure, or both if it was stopped after the clean pass."""

    name: str
    folder: RunFolder
    config: ExperimentConfig
    record: Record | None
    failure: Failure | None
    predicted: Predicted | None = None

    @property
    def status(self) -> str:
        """MLflow's run status: FINISHED, FAILED, or KILLED if the user stopped it."""
        if self.failure is None:
            return FINISHED
        return KILLED if self.failure.kind == FailureKind.INTERRUPTED else FAILED

    @property
    def is_complete(self) -> bool:
        """True if every pass ended, or one failed by itself; one killed from outside is worth a retry."""
        if self.failure is not None or self.record is None:
            return False
        if any(why.startswith("killed: ") for why in self.record.failed_passes.values()):
            return False
        ended = {name for name, outcome in self.record.passes.items() if outcome.status != PassStatus.RUNNING}
        if ended < self.record.passes.keys():
            return False
        asked = {*self.config.pass_names}
        asked |= {"counters"} if self.config.counters != "off" else set()
        return asked <= ended or bool(self.record.failed_passes)

    @property
    def was_cut_off(self) -> bool:
        """True if the user stopped it, or dpprof itself was stopped while it ran."""
        if self.failure is None:
            return not self.is_complete
        return self.status == KILLED or self.failure.message == _NO_ANSWER

    @cached_property
    def figures(self) -> Figures | None:
        """Figures of its record; None without one, or if its first pass did not finish."""
        stands = self.record is not None and self.record.headline_finished
        return Figures.of(self.record) if self.record is not None and stands else None

    @property
    def step(self) -> LogicalStep | None:
        """The step of an estimate; None where nothing is predicted."""
        estimate = self.figures.estimate if self.figures is not None else None
        return estimate.step if estimate is not None and estimate.step.time is not None else None

    @property
    def estimated(self) -> Estimated | None:
        """Its experiment with the ledger, of which `StepCost` is made; None without a ledger."""
        ledger = self.record.ledger if self.record is not None else None
        return None if ledger is None else (self.config, ledger)

    @cached_property
    def named(self) -> list[Metric]:
        """Figures with metric names: a failure's last memory figures, the record's, and the plan's."""
        failed = memory_metrics(self.failure.memory) if self.failure else ()
        planned = plan_metrics(self.predicted) if self.predicted else ()
        measured = named(self.record, self.figures) if self.record and self.figures else ()
        return [*failed, *measured, *planned]

    @cached_property
    def metrics(self) -> dict[str, float]:
        """Figures by metric name."""
        return metrics(self.named)

    @property
    def weights_dtype(self) -> str:
        """Types of the model's weights in words, as far as its record knows them."""
        return self.record.weights_dtype if self.record is not None else ""

    @property
    def precision(self) -> str:
        """Precision in words, with the type of the weights."""
        return describe_precision(self.config, self.weights_dtype)

    @property
    def verdicts(self) -> dict[str, Verdict]:
        """Verdicts of the requested checks, `GRADIENT_CHECK` and `VERIFY`; none if the experiment failed."""
        return {} if self.failure is not None or self.record is None else verdicts(self.record)

    @property
    def worst_verdict(self) -> Verdict | None:
        """The worse of the two verdicts; its reason says so if it is that of `verify`."""
        told = [
            Verdict(verdict.word, f"verify: {verdict.reason}" if name == VERIFY else verdict.reason)
            for name, verdict in self.verdicts.items()
        ]
        return min(told, key=lambda verdict: (FAIL, CANNOT_TELL, PASS).index(verdict.word), default=None)


def read_result(folder: RunFolder, name: str | None = None) -> Result:
    """Read a run folder; without an answer it counts as killed. The folder's name is the run's by default.

    Raises DpprofError if it is not a run folder, or if a file in it is damaged.
    """
    record, failure = folder.read_record(), folder.read_error()
    config = folder.read_config()
    lacks_counters = config.counters == "ncu" and record is not None and record.counters is None
    if failure is None and (record is None or not record.headline_finished or lacks_counters):
        failure = Failure(FailureKind.KILLED, _NO_ANSWER, at=folder.config.stat().st_mtime)
    result = Result(name or folder.name, folder, config, record, failure, folder.read_predicted())
    with naming(folder.record):
        try:
            list(result.named)  # computed now, so that errors name the file
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise DpprofError(f"its figures do not fit together ({error!r})") from error
    return result


def read_results(runs: Iterable[tuple[str, RunFolder]]) -> tuple[list[Result], list[str]]:
    """Read named run folders; returns the results, and a sentence for each folder that cannot be read."""
    results, damaged = [], []
    for name, folder in runs:
        try:
            results.append(read_result(folder, name))
        except DpprofError as error:
            damaged.append(f"{name}: {error}")
    return results, damaged


def describe(result: Result) -> str:
    """Describe in one line how an experiment ended: its main figures, or the reason of its failure."""
    if result.failure is not None:
        lines = result.failure.message.strip().splitlines()
        return f"{result.status.lower()} ({result.failure.kind}): {lines[0][:400] if lines else ''}"
    record, figures = result.record, result.figures
    if record is None or figures is None:
        return "no record"
    if figures.estimate is not None:
        return _describe_estimate(result.config, figures, figures.estimate)
    text = f"step {milliseconds(ms(statistics.median(record.step_s)))}" if record.step_s else "no step"
    if figures.peak_mib is not None:
        text += f", peak {size(figures.peak_mib)}"
    text += _largest(figures)
    if record.step_samples:
        text += f", batches of up to {max(record.step_samples):,} samples"
    for name, why in record.failed_passes.items():
        if name not in ("gradient_check", "verify"):  # their verdicts say so
            text += f"; {name} pass failed: {why.splitlines()[0][:160]}"
    for name, verdict in result.verdicts.items():
        text += f"; {name}: {verdict}"
    if record.nonfinite_losses:
        text += f"; {nonfinite_losses(record)}"
    if record.privacy is not None:
        is_given = record.privacy.epsilon is None or result.config.poisson_sampling
        text += f"; {headline(record.privacy)}{'' if is_given else ' if Poisson-sampled'}"
    return text + "".join(f"; no {name}" for name in record.skipped_passes)


def nonfinite_losses(record: Record) -> str:
    """Say how many losses of the timed steps were not finite."""
    num_losses = sum(record.step_samples) or (record.samples_per_step or 0) * len(record.step_s)
    return f"{record.nonfinite_losses} of {num_losses} losses are NaN or infinite"


def _describe_estimate(config: ExperimentConfig, figures: Figures, estimate: EstimateFigures) -> str:
    text = f"estimated peak {size(figures.peak_mib or 0.0)}{_largest(figures)}"
    if config.device == "cuda":
        text += f", needs {memory(estimate.needed_mib, 2)}"
    held = estimate_held_against(estimate, config)
    if held:
        text += f": {held}"
    if figures.sent_mib is not None:
        text += f", sends {memory(figures.sent_mib)} a step"
    if estimate.step.time is not None:
        which = f" with {config.estimated_batch:,} samples" if config.poisson_sampling else ""
        text += f", a step{which} takes {time_range(estimate.step.time)}"
        if estimate.step.bound is not None and estimate.step.bound.words:
            text += f" and {estimate.step.bound.words}"
    return text


def estimate_held_against(estimate: EstimateFigures, config: ExperimentConfig) -> str:
    """Say whether an estimate fits its device, or why that is open."""
    is_held = estimate.capacity_mib is not None
    return fit_sentence(is_held, estimate.fits, estimate.growth_mib, estimate.doubt_mib, device_name(config))


def describe_steps(config: ExperimentConfig) -> str:
    """Describe the training loop, and the batches where they vary."""
    text = LOOP_NAMES[config.loop]
    if config.poisson_sampling and config.is_estimate:
        tail = config.estimating.poisson_tail
        text += f", with a batch that at most {tail:g} of Poisson-sampled ones exceed"
    elif config.poisson_sampling:
        text += (
            ", with Poisson-sampled batches: step times are those of all sizes, memory and traffic those of "
            "the largest one that was timed"
        )
    return text


def describe_precision(config: ExperimentConfig, weights_dtype: str) -> str:
    """Describe the precision and the type of the weights: `fp32`, `bf16`, `fp32, weights in bf16`.

    Whether a measured loop that is not dpprof's runs under autocast is not known.
    """
    if config.trainer == OWN_LOOP and not config.is_estimate and weights_dtype:
        return f"weights in {weights_dtype}"
    return precision_in_words(config.precision, weights_dtype)


def device_name(config: ExperimentConfig) -> str:
    """Name the device or memory that an estimate is compared with."""
    limit = capacity_bytes(config)
    if limit is None:
        return ""
    held = memory(mib(limit))
    target = config.estimating.target
    return held if target == "none" else f"{target} ({held})"


def _largest(figures: Figures) -> str:
    """Return the share of the largest category at the peak; an estimate leaves out allocator overhead."""
    held = figures.ledger.at_peak_mib if figures.ledger else {}
    named = [category for category in held if category != UNTRACKED or figures.estimate is None]
    if not named:
        return ""
    largest = max(named, key=lambda category: held[category])
    return f" ({100 * held[largest] / sum(held.values()):.0f} % {largest.replace('_', ' ')})"
