"""Doubts about a comparison: runs that do not compare, and figures not to be trusted."""

from collections.abc import Iterator

from dpprof.findings.comparison.cell import Cell
from dpprof.findings.comparison.comparison import Comparison
from dpprof.findings.comparison.places import full_name
from dpprof.findings.comparison.run import Run
from dpprof.findings.comparison.side_tables import privacy_doubts
from dpprof.record.figures.ledger import ledger_doubt
from dpprof.record.figures.names import UNEXPLAINED
from dpprof.record.figures.verdicts import CANNOT_TELL, FAIL
from dpprof.vocabulary.clipping import OTHER_ALGORITHMS
from dpprof.vocabulary.trainers import short_name

# Figures compare only between runs that share these, here with the words for them.
_SAME = {
    "gpu": "GPU",
    "cpu": "processor",
    "cpu_cores": "number of cores",
    "torch_threads": "number of threads",
    "cuda_version": "CUDA",
    "torch_version": "torch",
    "opacus_version": "Opacus",
    "dpprof_version": "dpprof",
    "niceness": "priority",
}
_LISTED = 4


def doubts(comparison: Comparison) -> list[str]:
    """Return a sentence for each doubt."""
    found = (
        *(_gradient_checks, _nonfinite, privacy_doubts, _differences, _other_algorithms, _too_low),
        *(_ledgers, _disturbed, _skipped, _warnings),
    )
    return [sentence for sentences in found for sentence in sentences(comparison)]


def _gradient_checks(comparison: Comparison) -> Iterator[str]:
    """Yield checks that failed or cannot tell, grouped by reason."""
    total = sum(len(cell.runs) for cell in comparison.cells)
    for word, said in ((FAIL, "failed"), (CANNOT_TELL, "could not tell")):
        runs = [run for cell in comparison.cells for run in cell.runs if run.gradient_check == word]
        for reason in dict.fromkeys(run.gradient_check_reason for run in runs):
            names = [run.name for run in runs if run.gradient_check_reason == reason]
            yield f"The gradient check {said} in {len(names)} of {total} runs ({_listed(names)}): {reason}."


def _nonfinite(comparison: Comparison) -> Iterator[str]:
    for run in (run for cell in comparison.cells for run in cell.runs):
        if run.nonfinite_losses:
            yield f"{run.name}: {run.nonfinite_losses}. Its steps do not train the model."


def _differences(comparison: Comparison) -> Iterator[str]:
    measured = [cell for cell in comparison.cells if not cell.is_estimate]
    for name, shown in (("device", "device"), ("precision", "precision")):
        values = sorted({str(cell.settings[name]) for cell in comparison.cells})
        if len(values) > 1:
            only = f"compare only rows with the same {shown}"
            yield f"These runs differ in {shown} ({', '.join(values)}): {only}."
    for name, shown in _SAME.items():
        values = sorted({where.get(name, "none") for cell in measured for where in cell.environments})
        if len(values) > 1:
            yield f"These runs differ in {shown} ({', '.join(values)}): their figures may not be comparable."
    yield from _mixed(measured)


def _mixed(measured: list[Cell]) -> Iterator[str]:
    """Yield experiments whose own runs come from different machines."""
    found = {
        cell.runs[0].name: [
            shown
            for name, shown in _SAME.items()
            if len({where.get(name, "none") for where in cell.environments}) > 1
        ]
        for cell in measured
    }
    names = [name for name, differing in found.items() if differing]
    if names:
        shown = ", ".join(dict.fromkeys(one for differing in found.values() for one in differing))
        yield (
            f"{len(names)} of {len(measured)} experiments have runs that differ in {shown} "
            f"({_listed(names)}): the medians of these runs are those of no machine. Measure them on "
            "machines that are alike."
        )


def _other_algorithms(comparison: Comparison) -> Iterator[str]:
    found: dict[str, str] = {}
    for cell in comparison.cells:
        if cell.algorithm:
            clipping = str(cell.settings.get("clipping", ""))
            by_clipping = f" with clipping={clipping}" if clipping in OTHER_ALGORITHMS else ""
            found[f"{short_name(cell.trainer)}{by_clipping}"] = cell.algorithm
    for named, what in found.items():
        yield (
            f"{named} is another algorithm than DP-SGD with flat clipping: {what}. Its costs compare with "
            "the others'; the model that it trains is another one. It is not recommended beside them."
        )


def _too_low(comparison: Comparison) -> Iterator[str]:
    """Yield runs of dpprof 0.1, whose ghost and fast gradient clipping were leaner than Opacus's."""
    names = [
        run.name
        for cell in comparison.cells
        if cell.trainer in ("DPGhostClippingTrainer", "DPFastGradientClippingTrainer")
        for run in cell.runs
        if run.environment.get("dpprof_version", "").startswith("0.1.")
    ]
    if names:
        yield (
            "dpprof 0.1 dropped the gradients between the two backward passes of ghost and fast gradient "
            "clipping. Opacus keeps them, so the memory and traffic of these runs are too low: measure them "
            f"again. ({_listed(names)})"
        )


def _ledgers(comparison: Comparison) -> Iterator[str]:
    for cell in comparison.cells:
        doubt = ledger_doubt(cell.figures.get(UNEXPLAINED))
        if doubt:
            yield f"{cell.runs[0].name}: {doubt}."


def _disturbed(comparison: Comparison) -> Iterator[str]:
    total = sum(len(cell.finished) for cell in comparison.cells)
    runs = [run for cell in comparison.cells if cell.is_disturbed for run in cell.finished]
    left_out = [run for cell in comparison.cells if cell.calm for run in cell.finished if run.disturbances]
    if runs:
        yield (
            f"Disturbed while timed: {len(runs)} of {total} runs ({_with_reasons(runs)}), so no trainer is "
            f"called fastest and no ratio of step times has an interval {_where(comparison)}. Repeat these "
            "runs when the machine is quiet or, to compare over time, measure with --repeats 3 --passes "
            "clean,pace,memory."
        )
    if left_out:
        yield (
            f"Left out: {len(left_out)} of {total} runs, disturbed while timed ({_with_reasons(left_out)}); "
            "the same experiments have undisturbed runs too."
        )


def _with_reasons(runs: list[Run]) -> str:
    return _shortened([f"{run.name}: {', '.join(run.disturbances)}" for run in runs])


def _where(comparison: Comparison) -> str:
    first = [place[0] for place in comparison.places]
    found = [cell for cell in first if comparison.is_disturbed_at(cell)]
    if len(found) == len(first) > 1:
        return f"at any of the {len(first)} places"
    return "at " + _shortened([full_name(comparison, cell) for cell in found])


def _shortened(texts: list[str]) -> str:
    more = [f"{len(texts) - _LISTED} more"] if len(texts) > _LISTED else []
    return "; ".join([*texts[:_LISTED], *more])


def _skipped(comparison: Comparison) -> Iterator[str]:
    runs = [run for cell in comparison.cells for run in cell.runs]
    reasons = dict.fromkeys(item for run in runs for item in run.skipped_passes.items())
    for name, why in reasons:
        count = sum(run.skipped_passes.get(name) == why for run in runs)
        yield f"No {name} in {count} of {len(runs)} runs: {why}."


def _warnings(comparison: Comparison) -> Iterator[str]:
    runs = [run for cell in comparison.cells for run in cell.runs]
    for text in dict.fromkeys(text for run in runs for text in run.warnings):
        count = sum(text in run.warnings for run in runs)
        yield f"{text[0].upper()}{text[1:]} ({count} of {len(runs)} runs)."


def _listed(names: list[str]) -> str:
    return ", ".join(names[:_LISTED]) + (", ..." if len(names) > _LISTED else "")
