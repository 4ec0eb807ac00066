"""How the experiment of a run folder ended, read from the folder alone."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from dpprof.config.experiment import ExperimentConfig
from dpprof.errors import DpprofError
from dpprof.figures.capacity import capacity_bytes
from dpprof.figures.estimate import EstimateFigures, held_against
from dpprof.figures.figures import Figures
from dpprof.figures.gradient_verdict import CANNOT_TELL, FAIL, PASS, Verdict, gradient_verdict
from dpprof.figures.ledger import UNTRACKED
from dpprof.figures.memory import MemoryFigures
from dpprof.figures.metric import Metric
from dpprof.figures.names import memory_metrics, metrics, named
from dpprof.figures.plan.beside import plan_metrics
from dpprof.figures.privacy import headline
from dpprof.figures.verify_verdict import verify_verdict
from dpprof.json_files import naming
from dpprof.record.folder import RunFolder
from dpprof.record.predicted import Predicted
from dpprof.record.record import Failure, Record
from dpprof.vocabulary.formats import fixed, memory, milliseconds, size
from dpprof.vocabulary.loops import LOOP_NAMES
from dpprof.vocabulary.units import mib, ms

FINISHED, FAILED, KILLED = "FINISHED", "FAILED", "KILLED"
_NO_ANSWER = "it left no answer: dpprof itself was stopped while it ran"


@dataclass(frozen=True)
class Result:
    """One experiment's end: a record, a failure, or both if it was stopped after the clean pass.

    Its figures are computed once, when they are first asked for.
    """

    name: str
    folder: RunFolder
    config: ExperimentConfig
    record: Record | None
    failure: Failure | None
    predicted: Predicted | None = None

    @property
    def status(self) -> str:
        """MLflow's run status: FINISHED, FAILED, or KILLED when the user stopped it."""
        if self.failure is None:
            return FINISHED
        return KILLED if self.failure.kind == "interrupted" else FAILED

    @property
    def is_complete(self) -> bool:
        """Whether it has an outcome for every pass asked for, or for those up to one that failed by itself.
        A pass in which something from outside killed the process is worth another try.
        """
        if self.failure is not None or self.record is None:
            return False
        if any(why.startswith("killed: ") for why in self.record.failed_passes.values()):
            return False
        ended = {name for name, outcome in self.record.passes.items() if outcome.status != "running"}
        if ended < self.record.passes.keys():
            return False
        asked = {*self.config.pass_names}
        asked |= {"counters"} if self.config.counters != "off" else set()
        return asked <= ended or bool(self.record.failed_passes)

    @property
    def was_cut_off(self) -> bool:
        """Whether the user stopped it, or dpprof itself was stopped while it ran."""
        if self.failure is None:
            return not self.is_complete
        return self.status == KILLED or self.failure.message == _NO_ANSWER

    @cached_property
    def figures(self) -> Figures | None:
        """What its record says; None without one, or if its first pass did not finish."""
        stands = self.record is not None and self.record.headline_finished
        return Figures.of(self.record) if self.record is not None and stands else None

    @cached_property
    def named(self) -> list[Metric]:
        """Its figures with metric names: the last memory figures of a failure, those of the record, and what
        a plan said.
        """
        failed = memory_metrics(MemoryFigures.of(self.failure.memory)) if self.failure else ()
        planned = plan_metrics(self.predicted) if self.predicted else ()
        return [*failed, *(named(self.figures) if self.figures else ()), *planned]

    @cached_property
    def metrics(self) -> dict[str, float]:
        """Its figures by metric name."""
        return metrics(self.named)

    @property
    def gradient_verdict(self) -> Verdict | None:
        """What the gradient check says; None where none was asked for, or the experiment failed."""
        return None if self.failure or self.record is None else gradient_verdict(self.record)

    @property
    def verify_verdict(self) -> Verdict | None:
        """What verifying its trainer says; None where that was not asked for, or the experiment failed."""
        return None if self.failure or self.record is None else verify_verdict(self.record)

    @property
    def verdicts(self) -> dict[str, Verdict]:
        """Both, by what gives them, where there are any."""
        verdicts = {"gradient check": self.gradient_verdict, "verify": self.verify_verdict}
        return {name: verdict for name, verdict in verdicts.items() if verdict is not None}

    @property
    def worst_verdict(self) -> Verdict | None:
        """The worse of the two; the reason tells if it is that of `verify`."""
        told = [
            Verdict(verdict.word, f"verify: {verdict.reason}" if name == "verify" else verdict.reason)
            for name, verdict in self.verdicts.items()
        ]
        return min(told, key=lambda verdict: (FAIL, CANNOT_TELL, PASS).index(verdict.word), default=None)


def read_result(folder: RunFolder, name: str | None = None) -> Result:
    """Read a run folder. A folder without an answer counts as killed. The run is named as its folder.

    Raises DpprofError if it is not a run folder, or if a file in it is damaged.
    """
    record, failure = folder.read_record(), folder.read_error()
    config = folder.read_config()
    if failure is None and (
        record is None or not record.headline_finished or _lacks_counters(config, record)
    ):
        ended_at = folder.config.stat().st_mtime
        failure = Failure("killed", _NO_ANSWER, at=ended_at)
    result = Result(name or folder.name, folder, config, record, failure, folder.read_predicted())
    with naming(folder.record):
        try:
            list(result.named)  # computed now, so that what does not fit together is told with the file
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise DpprofError(f"its figures do not fit together ({error!r})") from error
    return result


def read_results(runs: Iterable[tuple[str, RunFolder]]) -> tuple[list[Result], list[str]]:
    """The results of run folders, each with the name of its run, and a sentence for each one that cannot be
    read, with its name and what is wrong with which file.
    """
    results, damaged = [], []
    for name, folder in runs:
        try:
            results.append(read_result(folder, name))
        except DpprofError as error:
            damaged.append(f"{name}: {error}")
    return results, damaged


def _lacks_counters(config: ExperimentConfig, record: Record) -> bool:
    """Whether a run that may not go without its hardware counters has none, and nothing says why."""
    return config.counters == "ncu" and record.counters is None


def describe(result: Result) -> str:
    """One line on how an experiment ended: its headline figures, or its failure and the reason."""
    if result.failure is not None:
        lines = result.failure.message.strip().splitlines()
        return f"{result.status.lower()} ({result.failure.kind}): {lines[0][:400] if lines else ''}"
    record, figures = result.record, result.figures
    if record is None or figures is None:
        return "no record"
    if figures.estimate is not None:
        return _describe_estimate(result.config, figures, figures.estimate)
    text = f"step {milliseconds(figures.step.median_ms)}" if figures.step else "no step"
    if figures.memory.peak_allocated_mib is not None:
        text += f", peak {size(figures.memory.peak_allocated_mib)}"
    text += _largest(figures)
    if figures.step and figures.step.largest_batch is not None:
        text += f", batches of up to {figures.step.largest_batch:,} samples"
    for name, why in record.failed_passes.items():
        if name not in ("gradient_check", "verify"):  # their verdicts tell
            text += f"; {name} pass failed: {why.splitlines()[0][:160]}"
    for name, verdict in result.verdicts.items():
        text += f"; {name}: {verdict}"
    if record.nonfinite_losses:
        text += f"; {nonfinite_losses(record)}"
    if record.privacy is not None:
        text += f"; {headline(record.privacy)}"
        text += (
            "" if record.privacy.epsilon is None or result.config.poisson_sampling else " if Poisson-sampled"
        )
    return text + "".join(f"; no {name}" for name in record.skipped_passes)


def nonfinite_losses(record: Record) -> str:
    """How many losses of the timed steps were not finite, in words."""
    return f"{record.nonfinite_losses} of {record.num_losses} losses are NaN or infinite"


def _describe_estimate(config: ExperimentConfig, figures: Figures, estimate: EstimateFigures) -> str:
    text = f"estimated peak {size(figures.memory.peak_allocated_mib or 0.0)}{_largest(figures)}"
    if config.device == "cuda":
        text += f", needs {memory(estimate.needed_mib, 2)}"
    held = estimate_held_against(estimate, config)
    if held:
        text += f": {held}"
    if figures.communication is not None:
        text += f", sends {memory(sum(figures.communication.sent_mib.values()))} a step"
    if estimate.step_floor_s is not None:
        which = f" with {config.estimated_batch:,} samples" if config.poisson_sampling else ""
        text += f", a step{which} takes {fixed(ms(estimate.step_floor_s), 2)} ms or more"
    return text


def estimate_held_against(estimate: EstimateFigures, config: ExperimentConfig) -> str:
    """Whether an estimate fits its device, by name, or why that cannot be told."""
    is_held = estimate.capacity_mib is not None
    return held_against(is_held, estimate.fits, estimate.growth_mib, estimate.doubt_mib, device_name(config))


def describe_steps(config: ExperimentConfig) -> str:
    """The training loop, and the batches where they vary, in words."""
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


def device_name(config: ExperimentConfig) -> str:
    """What an estimate is held against, in words."""
    limit = capacity_bytes(config)
    if limit is None:
        return ""
    held = memory(mib(limit))
    target = config.estimating.target
    return held if target == "none" else f"{target} ({held})"


def _largest(figures: Figures) -> str:
    """The share of the largest category at the peak; an estimate leaves out what the allocator adds."""
    held = figures.ledger.at_peak_mib if figures.ledger else {}
    named = [category for category in held if category != UNTRACKED or figures.estimate is None]
    if not named:
        return ""
    largest = max(named, key=lambda category: held[category])
    return f" ({100 * held[largest] / sum(held.values()):.0f} % {largest.replace('_', ' ')})"
