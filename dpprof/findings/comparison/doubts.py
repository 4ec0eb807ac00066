"""Doubts about a comparison: runs that do not compare, and figures not to be trusted."""

from collections import Counter
from collections.abc import Iterator

from dpprof.findings.comparison.cell import Cell
from dpprof.findings.comparison.comparison import Comparison
from dpprof.findings.comparison.places import first_names, full_name
from dpprof.findings.comparison.run import Run
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
        _gradient_checks,
        _nonfinite,
        _privacy,
        _differences,
        _other_algorithms,
        _ledgers,
        _disturbed,
        _told_by_runs,
    )
    return [sentence for sentences in found for sentence in sentences(comparison)]


def _gradient_checks(comparison: Comparison) -> Iterator[str]:
    """Yield checks that failed or cannot tell, grouped by reason."""
    for word, said in ((FAIL, "failed"), (CANNOT_TELL, "could not tell")):
        runs = [run for run in comparison.runs if run.gradient_check == word]
        for reason in dict.fromkeys(run.gradient_check_reason for run in runs):
            names = [run.name for run in runs if run.gradient_check_reason == reason]
            in_runs = f"in {len(names)} of {len(comparison.runs)} runs ({_listed(names)})"
            yield f"The gradient check {said} {in_runs}: {reason}."


def _nonfinite(comparison: Comparison) -> Iterator[str]:
    for run in comparison.runs:
        if run.nonfinite_losses:
            yield f"{run.name}: {run.nonfinite_losses}. Its steps do not train the model."


def _privacy(comparison: Comparison) -> Iterator[str]:
    """Yield what weakens a guarantee or leaves a run without one, each sentence once."""
    found = [run.privacy for cell in comparison.cells for run in cell.finished if run.privacy is not None]
    for note, count in Counter(note for privacy in found for note in privacy.notes).items():
        yield f"Privacy: {note} ({count} of {len(found)} runs)."


def _differences(comparison: Comparison) -> Iterator[str]:
    told = {name: {str(cell.settings[name]) for cell in comparison.cells} for name in ("device", "precision")}
    told["type of weights"] = {run.weights_dtype for run in comparison.runs} - {""}
    for name, different in told.items():
        values = sorted(different)
        if len(values) > 1:
            only = f"compare only rows with the same {name}"
            yield f"These runs differ in {name} ({', '.join(values)}): {only}."
    for cell in comparison.cells:
        if len(types := {run.weights_dtype for run in cell.representative} - {""}) > 1:
            yield (
                f"The weights of {cell.runs[0].name} are not of one type in all its runs "
                f"({', '.join(sorted(types))}): the medians of these runs are those of no model."
            )
    measured = [cell for cell in comparison.cells if not cell.is_estimate]
    for shown, values in _differing(measured).items():
        yield f"These runs differ in {shown} ({', '.join(values)}): their figures may not be comparable."
    mixed = [(cell.runs[0].name, found) for cell in measured if (found := _differing([cell]))]
    if mixed:
        shown = ", ".join(dict.fromkeys(one for _, found in mixed for one in found))
        yield (
            f"{len(mixed)} of {len(measured)} experiments have runs that differ in {shown} "
            f"({_listed([name for name, _ in mixed])}): the medians of these runs are those of no machine. "
            "Measure them on machines that are alike."
        )


def _differing(cells: list[Cell]) -> dict[str, list[str]]:
    """Return the values in which the environments of some cells differ, by what they are."""
    environments = [where for cell in cells for where in cell.environments]
    values = {shown: {where.get(name, "none") for where in environments} for name, shown in _SAME.items()}
    return {shown: sorted(found) for shown, found in values.items() if len(found) > 1}


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


def _ledgers(comparison: Comparison) -> Iterator[str]:
    for cell in comparison.cells:
        doubt = ledger_doubt(cell.figures.get(UNEXPLAINED))
        if doubt:
            yield f"{cell.runs[0].name}: {doubt}."


def _disturbed(comparison: Comparison) -> Iterator[str]:
    finished = [(cell, run) for cell in comparison.cells for run in cell.finished]
    runs = [run for cell, run in finished if cell.is_disturbed]
    left_out = [run for cell, run in finished if cell.calm and run.disturbances]
    total = len(finished)
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
    return first_names([f"{run.name}: {', '.join(run.disturbances)}" for run in runs], _LISTED)


def _where(comparison: Comparison) -> str:
    first = [place[0] for place in comparison.places]
    found = [cell for cell in first if comparison.is_disturbed_at(cell)]
    if len(found) == len(first) > 1:
        return f"at any of the {len(first)} places"
    return "at " + first_names([full_name(comparison, cell) for cell in found], _LISTED)


def _told_by_runs(comparison: Comparison) -> Iterator[str]:
    """Yield skipped passes, then warnings, each once."""
    runs = comparison.runs
    for (name, why), count in Counter(item for run in runs for item in run.skipped_passes.items()).items():
        yield f"No {name} in {count} of {len(runs)} runs: {why}."
    for text, count in Counter(text for run in runs for text in dict.fromkeys(run.warnings)).items():
        yield f"{text[0].upper()}{text[1:]} ({count} of {len(runs)} runs)."


def _listed(names: list[str]) -> str:
    return ", ".join(names[:_LISTED]) + (", ..." if len(names) > _LISTED else "")
