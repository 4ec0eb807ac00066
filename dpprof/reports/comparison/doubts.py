"""What a reader must know before trusting a comparison: runs that do not compare, figures in doubt."""

from collections.abc import Iterator

from dpprof.metrics import ledger_doubt
from dpprof.reports.comparison.cells import Comparison, Run

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
_LISTED = 4


def doubts(comparison: Comparison) -> list[str]:
    """A sentence for each."""
    return [
        *_differences(comparison),
        *_ledgers(comparison),
        *_disturbed(comparison),
        *_skipped(comparison),
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


def _disturbed(comparison: Comparison) -> Iterator[str]:
    """Which runs were not timed in peace, what they are left out of, and what to do."""
    total = sum(len(cell.finished) for cell in comparison.cells)
    runs = [run for cell in comparison.cells if cell.is_disturbed for run in cell.finished]
    left_out = [run for cell in comparison.cells if cell.calm for run in cell.finished if run.disturbances]
    if runs:
        yield (
            f"Disturbed while timed: {len(runs)} of {total} runs ({_listed(runs)}), so no trainer is called "
            f"fastest and no ratio of step times has an interval {_where(comparison)}: repeat these runs "
            "when the machine is quiet, or, to compare over time, measure with --repeats 3 --passes "
            "clean,pace,memory."
        )
    if left_out:
        yield (
            f"Left out: {len(left_out)} of {total} runs, disturbed while timed ({_listed(left_out)}); the "
            "same experiments have undisturbed runs too."
        )


def _listed(runs: list[Run]) -> str:
    return _shortened([f"{run.name}: {', '.join(run.disturbances)}" for run in runs])


def _where(comparison: Comparison) -> str:
    """The places with a disturbed cell, in words."""
    first = [place[0] for place in comparison.places]
    found = [cell for cell in first if comparison.is_disturbed_at(cell)]
    if len(found) == len(first) > 1:
        return f"at any of the {len(first)} places"
    return "at " + _shortened([f"{cell.config.model_name}, {comparison.place_name(cell)}" for cell in found])


def _shortened(texts: list[str]) -> str:
    more = [f"{len(texts) - _LISTED} more"] if len(texts) > _LISTED else []
    return "; ".join([*texts[:_LISTED], *more])


def _skipped(comparison: Comparison) -> Iterator[str]:
    """What a machine could not do, once for each reason."""
    runs = [run for cell in comparison.cells for run in cell.runs]
    reasons = dict.fromkeys(item for run in runs for item in run.skipped_passes.items())
    for name, why in reasons:
        count = sum(run.skipped_passes.get(name) == why for run in runs)
        yield f"No {name} in {count} of {len(runs)} runs: {why}."
