"""How the experiment of a run folder ended, read from the folder alone."""

from dataclasses import dataclass

from dpprof.config import ExperimentConfig
from dpprof.metrics import at_peak, metrics
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
    if failure is None and (record is None or not record.clean_finished):
        ended_at = folder.config.stat().st_mtime
        failure = Failure(
            "killed", "it ended without an answer: the whole of dpprof was stopped meanwhile", at=ended_at
        )
    return Result(name or folder.name, folder, folder.read_config(), record, failure)


def describe(result: Result) -> str:
    """One line on how an experiment ended: its headline figures, or its failure and the reason."""
    if result.failure is not None:
        lines = result.failure.message.strip().splitlines()
        return f"{result.status.lower()} ({result.failure.kind}): {lines[0][:200] if lines else ''}"
    if result.record is None:
        return "no record"
    figures = metrics(result.record)
    text = f"step {figures['latency/step_ms_median']:,.1f} ms"
    if "memory/peak_allocated_mib" in figures:
        text += f", peak {figures['memory/peak_allocated_mib']:,.1f} MiB"
    held = at_peak(result.record)
    if held:
        largest = max(held, key=lambda category: held[category])
        text += f" ({100 * held[largest] / sum(held.values()):.0f} % {largest.replace('_', ' ')})"
    for name, why in result.record.failed_passes.items():
        text += f"; {name} pass failed: {why.splitlines()[0][:160]}"
    return text
