"""How the experiment of a run folder ended, read from the folder alone."""

from dataclasses import dataclass

from dpprof.capacity import capacity_bytes
from dpprof.config import ExperimentConfig
from dpprof.metrics import MIB, UNTRACKED, at_peak, is_estimate, metrics
from dpprof.paths import RunFolder
from dpprof.record import Failure, Record

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
        return f"{result.status.lower()} ({result.failure.kind}): {lines[0][:200] if lines else ''}"
    if result.record is None:
        return "no record"
    figures = metrics(result.record)
    if result.config.is_estimate:
        return _describe_estimate(result.config, figures, result.record)
    text = f"step {figures['latency/step_ms_median']:,.1f} ms"
    if "memory/peak_allocated_mib" in figures:
        text += f", peak {figures['memory/peak_allocated_mib']:,.1f} MiB"
    text += _largest(result.record)
    for name, why in result.record.failed_passes.items():
        text += f"; {name} pass failed: {why.splitlines()[0][:160]}"
    return text + "".join(f"; no {name}" for name in result.record.skipped_passes)


def _describe_estimate(config: ExperimentConfig, figures: dict[str, float], record: Record) -> str:
    text = f"estimated peak {figures['memory/peak_allocated_mib']:,.1f} MiB{_largest(record)}"
    if config.device == "cuda":
        text += f", needs {figures['memory/needed_mib'] / 1024:,.2f} GiB"
    held = held_against(figures, device_name(config))
    if held:
        text += f": {held}"
    if "floor/step_ms" in figures:
        text += f", a step takes {figures['floor/step_ms']:,.2f} ms or more"
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
        why = f"every step leaves {_memory(figures['memory/growth_per_step_mib'])} more alive"
    elif "memory/doubt_mib" in figures:
        why = f"up to {_memory(figures['memory/doubt_mib'])} more are in doubt"
    else:
        why = "nothing bounds what is in doubt"
    return f"may or may not fit {device}".rstrip() + f", as {why}"


def device_name(config: ExperimentConfig) -> str:
    """What an estimate is held against, in words."""
    limit = capacity_bytes(config)
    if limit is None:
        return ""
    memory = _memory(limit / MIB)
    return memory if config.target == "none" else f"{config.target} ({memory})"


def _memory(mib: float) -> str:
    if mib < 1:
        return f"{1024 * mib:,.1f} KiB"
    return f"{mib / 1024:,.1f} GiB" if mib >= 1024 else f"{mib:,.1f} MiB"


def _largest(record: Record) -> str:
    held = at_peak(record)
    if is_estimate(record):  # the share among tensors: what an allocator adds is another matter
        held.pop(UNTRACKED, None)
    if not held:
        return ""
    largest = max(held, key=lambda category: held[category])
    return f" ({100 * held[largest] / sum(held.values()):.0f} % {largest.replace('_', ' ')})"
