"""Doubts about a comparison: runs that do not compare, and figures not to be trusted."""

from collections import Counter
from collections.abc import Iterator

from dpprof.findings.comparison.cell import Cell
from dpprof.findings.comparison.comparison import Comparison
from dpprof.findings.comparison.places import first_names, full_name
from dpprof.findings.comparison.run import Run
from dpprof.findings.sentences import say
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
    for word, kind in ((FAIL, "doubt.check_failed"), (CANNOT_TELL, "doubt.check_open")):
        runs = [run for run in comparison.runs if run.gradient_check == word]
        for reason in dict.fromkeys(run.gradient_check_reason for run in runs):
            names = [run.name for run in runs if run.gradient_check_reason == reason]
            number, total = len(names), len(comparison.runs)
            yield say(kind, number=number, total=total, names=_listed(names), reason=reason)


def _nonfinite(comparison: Comparison) -> Iterator[str]:
    for run in comparison.runs:
        if run.nonfinite_losses:
            yield say("doubt.losses", run=run.name, losses=run.nonfinite_losses)


def _privacy(comparison: Comparison) -> Iterator[str]:
    """Yield what weakens a guarantee or leaves a run without one, each sentence once."""
    found = [run.privacy for cell in comparison.cells for run in cell.finished if run.privacy is not None]
    for note, count in Counter(note for privacy in found for note in privacy.notes).items():
        yield say("doubt.privacy", note=note, number=count, total=len(found))


def _differences(comparison: Comparison) -> Iterator[str]:
    told = {name: {str(cell.settings[name]) for cell in comparison.cells} for name in ("device", "precision")}
    told["type of weights"] = {run.weights_dtype for run in comparison.runs} - {""}
    for name, different in told.items():
        values = sorted(different)
        if len(values) > 1:
            yield say("doubt.settings", what=name, values=", ".join(values))
    for cell in comparison.cells:
        if len(types := {run.weights_dtype for run in cell.representative} - {""}) > 1:
            yield say("doubt.weights", run=cell.runs[0].name, values=", ".join(sorted(types)))
    measured = [cell for cell in comparison.cells if not cell.is_estimate]
    for shown, values in _differing(measured).items():
        yield say("doubt.machines", what=shown, values=", ".join(values))
    mixed = [(cell.runs[0].name, found) for cell in measured if (found := _differing([cell]))]
    if mixed:
        shown = ", ".join(dict.fromkeys(one for _, found in mixed for one in found))
        number, total, names = len(mixed), len(measured), _listed([name for name, _ in mixed])
        yield say("doubt.mixed_machines", number=number, total=total, what=shown, names=names)


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
        yield say("doubt.algorithm", trainer=named, what=what)


def _ledgers(comparison: Comparison) -> Iterator[str]:
    for cell in comparison.cells:
        doubt = ledger_doubt(cell.figures.get(UNEXPLAINED))
        if doubt:
            yield say("doubt.ledger", run=cell.runs[0].name, doubt=doubt)


def _disturbed(comparison: Comparison) -> Iterator[str]:
    finished = [(cell, run) for cell in comparison.cells for run in cell.finished]
    runs = [run for cell, run in finished if cell.is_disturbed]
    left_out = [run for cell, run in finished if cell.calm and run.disturbances]
    total = len(finished)
    if runs:
        of = {"number": len(runs), "runs": _with_reasons(runs), "where": _where(comparison)}
        yield say("doubt.disturbed", total=total, **of)
    if left_out:
        yield say("doubt.left_out", number=len(left_out), total=total, runs=_with_reasons(left_out))


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
        yield say("doubt.skipped", name=name, number=count, total=len(runs), why=why)
    for text, count in Counter(text for run in runs for text in dict.fromkeys(run.warnings)).items():
        text = f"{text[0].upper()}{text[1:]}"
        yield say("doubt.warned", text=text, number=count, total=len(runs))


def _listed(names: list[str]) -> str:
    return ", ".join(names[:_LISTED]) + (", ..." if len(names) > _LISTED else "")
