"""How the experiment of a run folder ended, read from the folder alone."""

from dataclasses import dataclass

from dpprof.config.experiment import ExperimentConfig
from dpprof.figures.capacity import capacity_bytes
from dpprof.figures.gradient_verdict import GradientVerdict, gradient_verdict
from dpprof.figures.metrics import MIB, UNTRACKED, at_peak, is_estimate, metrics
from dpprof.record.folder import RunFolder
from dpprof.record.record import Failure, Record
from dpprof.vocabulary.formats import fixed, memory, milliseconds, size
from dpprof.vocabulary.loops import LOOP_NAMES

FINISHED, FAILED, KILLED = "FINISHED", "FAILED", "KILLED"


@dataclass(frozen=True)
class Result:
    """One experiment's end: a record, a failure, or both if it was stopped after the clean pass."""

    name: str
    folder: RunFolder
    config: ExperimentConfig
    record: Record | None
    failure: Failure | None

    @property
    def status(self) -> str:
        """MLflow's run status: FINISHED, FAILED, or KILLED when the user stopped it."""
        if self.failure is None:
            return FINISHED
        return KILLED if self.failure.kind == "interrupted" else FAILED

    @property
    def gradient_verdict(self) -> GradientVerdict | None:
        """What the gradient check says; None where none was asked for, or the experiment failed."""
        return None if self.failure or self.record is None else gradient_verdict(self.record)


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
        failure = Failure(
            "killed", "it ended without an answer: the whole of dpprof was stopped meanwhile", at=ended_at
        )
    return Result(name or folder.name, folder, config, record, failure)


def _lacks_counters(config: ExperimentConfig, record: Record) -> bool:
    """Whether a run that may not go without its hardware counters has none, and nothing says why."""
    return config.counters == "ncu" and record.counters is None


def describe(result: Result) -> str:
    """One line on how an experiment ended: its headline figures, or its failure and the reason."""
    if result.failure is not None:
        lines = result.failure.message.strip().splitlines()
        return f"{result.status.lower()} ({result.failure.kind}): {lines[0][:400] if lines else ''}"
    if result.record is None:
        return "no record"
    figures = metrics(result.record)
    if result.config.is_estimate:
        return _describe_estimate(result.config, figures, result.record)
    text = f"step {milliseconds(figures['latency/step_ms_median'])}"
    if "memory/peak_allocated_mib" in figures:
        text += f", peak {size(figures['memory/peak_allocated_mib'])}"
    text += _largest(result.record)
    if result.record.step_samples:
        text += f", batches of up to {max(result.record.step_samples):,} samples"
    for name, why in result.record.failed_passes.items():
        if name != "gradient_check":  # its verdict tells
            text += f"; {name} pass failed: {why.splitlines()[0][:160]}"
    if result.gradient_verdict is not None:
        text += f"; gradient check: {result.gradient_verdict}"
    if result.record.nonfinite_losses:
        text += f"; {nonfinite_losses(result.record)}"
    return text + "".join(f"; no {name}" for name in result.record.skipped_passes)


def nonfinite_losses(record: Record) -> str:
    """How many losses of the timed steps were not finite, in words."""
    return f"{record.nonfinite_losses} of {record.num_losses} losses are NaN or infinite"


def _describe_estimate(config: ExperimentConfig, figures: dict[str, float], record: Record) -> str:
    text = f"estimated peak {size(figures['memory/peak_allocated_mib'])}{_largest(record)}"
    if config.device == "cuda":
        text += f", needs {memory(figures['memory/needed_mib'], 2)}"
    held = held_against(figures, device_name(config))
    if held:
        text += f": {held}"
    if "floor/step_ms" in figures:
        which = f" with {config.estimated_batch:,} samples" if config.poisson_sampling else ""
        text += f", a step{which} takes {fixed(figures['floor/step_ms'], 2)} ms or more"
    return text


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


def held_against(figures: dict[str, float], device: str = "") -> str:
    """Whether an estimate with these figures fits a device, or why that cannot be told; empty if it is held
    against none.
    """
    if "memory/capacity_mib" not in figures:
        return ""
    if "memory/fits" in figures:
        return f"{'fits' if figures['memory/fits'] else 'does not fit'} {device}".rstrip()
    if "memory/growth_per_step_mib" in figures:
        why = f"every step leaves {size(figures['memory/growth_per_step_mib'])} more alive"
    elif "memory/doubt_mib" in figures:
        why = f"up to {size(figures['memory/doubt_mib'])} more are in doubt"
    else:
        why = "nothing bounds what is in doubt"
    return f"may or may not fit {device}".rstrip() + f", as {why}"


def device_name(config: ExperimentConfig) -> str:
    """What an estimate is held against, in words."""
    limit = capacity_bytes(config)
    if limit is None:
        return ""
    held = memory(limit / MIB)
    target = config.estimating.target
    return held if target == "none" else f"{target} ({held})"


def _largest(record: Record) -> str:
    held = at_peak(record)
    named = [name for name in held if name != UNTRACKED or not is_estimate(record)]
    if not named:
        return ""
    largest = max(named, key=lambda category: held[category])
    return f" ({100 * held[largest] / sum(held.values()):.0f} % {largest.replace('_', ' ')})"
