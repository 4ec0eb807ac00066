"""What a reader must know before trusting a comparison: runs that do not compare, figures in doubt."""

from collections.abc import Iterator

from dpprof.metrics import ledger_doubt
from dpprof.reports.comparison.cells import IQR, STEP, Comparison

# What two runs must have in common before their figures compare, with the words for it.
_SAME = {
    "gpu": "GPU",
    "cpu": "processor",
    "cpu_cores": "number of cores",
    "torch_threads": "number of threads",
    "cuda_version": "CUDA",
    "torch_version": "torch",
    "opacus_version": "Opacus",
    "dpprof_version": "dpprof",
}
_RESTLESS_PCT = 25.0
_LISTED = 4


def doubts(comparison: Comparison) -> list[str]:
    """A sentence for each."""
    return [
        *_differences(comparison),
        *_ledgers(comparison),
        *_restless(comparison),
        *_skipped(comparison),
        *_warnings(comparison),
    ]


def _differences(comparison: Comparison) -> Iterator[str]:
    measured = [cell for cell in comparison.cells if cell.environment and not cell.is_estimate]
    for name, shown in (("device", "device"), ("precision", "precision")):
        values = sorted({str(cell.settings[name]) for cell in comparison.cells})
        if len(values) > 1:
            yield f"These runs differ in {shown} ({', '.join(values)}): only rows of one {shown} compare."
    for name, shown in _SAME.items():
        values = sorted({cell.environment.get(name, "none") for cell in measured})
        if len(values) > 1:
            yield f"These runs differ in {shown} ({', '.join(values)}): their figures need not compare."


def _ledgers(comparison: Comparison) -> Iterator[str]:
    for cell in comparison.cells:
        doubt = ledger_doubt(cell.figures.get("ledger/unexplained_pct"))
        if doubt:
            yield f"{cell.runs[0].name}: {doubt}."


def _restless(comparison: Comparison) -> Iterator[str]:
    names = [
        cell.runs[0].name
        for cell in comparison.cells
        if cell.finished and 100 * cell.figures.get(IQR, 0.0) > _RESTLESS_PCT * cell.figures.get(STEP, 0.0)
    ]
    if names:
        listed = ", ".join(names[:_LISTED]) + (", ..." if len(names) > _LISTED else "")
        yield (
            f"The steps of {len(names)} of {len(comparison.cells)} experiments vary by more than "
            f"{_RESTLESS_PCT:g} % of their median (interquartile range): was the machine busy? ({listed})"
        )


def _skipped(comparison: Comparison) -> Iterator[str]:
    """What a machine could not do, once for each reason."""
    runs = [run for cell in comparison.cells for run in cell.runs]
    reasons = dict.fromkeys(item for run in runs for item in run.skipped_passes.items())
    for name, why in reasons:
        count = sum(run.skipped_passes.get(name) == why for run in runs)
        yield f"No {name} in {count} of {len(runs)} runs: {why}."


def _warnings(comparison: Comparison) -> Iterator[str]:
    """What to know of the workloads, once for each sentence."""
    runs = [run for cell in comparison.cells for run in cell.runs]
    for text in dict.fromkeys(text for run in runs for text in run.warnings):
        count = sum(text in run.warnings for run in runs)
        yield f"In {count} of {len(runs)} runs {text}."
