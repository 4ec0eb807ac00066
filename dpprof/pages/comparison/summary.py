"""A comparison in words and tables: in the terminal, and as Markdown for `summary.md` and MLflow."""

from collections.abc import Iterator

from dpprof.findings.comparison.data import ComparisonData
from dpprof.findings.comparison.side_tables import failed_runs, judgement
from dpprof.findings.verdict.best import WORDS
from dpprof.pages import markdown
from dpprof.pages.comparison import tables
from dpprof.pages.comparison.answers import answered
from dpprof.pages.document import Document, Part, Points, Sentence, Styled, told
from dpprof.vocabulary.trainers import short_name

_NOTE = (
    "Step time is the median of the clean pass, ± half its interquartile range; peak is the most memory "
    "that torch's allocator handed out within a step (on the CPU recorded apart from the timed steps). "
    "An estimate's step is predicted, with its range in brackets. "
    "x is the ratio to standard in the same cell. "
    "1 MiB = 2^20 bytes."
)
_DISTURBED_NOTE = (
    "`disturbed` marks step times measured while other processes held the processors, or that varied too "
    "much to compare, and every ratio at such a place: they do not show how trainers differ."
)


def to_markdown(data: ComparisonData) -> str:
    """Return the whole comparison with its name."""
    parts: list[Part] = [part for found in data.findings for part in told(found)]
    parts += [Sentence((Styled("Warning."), f" {doubt}")) for doubt in data.doubts]
    parts += [Sentence(data.comparison.steps)] if data.comparison.steps else []
    parts += answered(data.comparison)
    parts += [cells] if (cells := tables.cell_table(data.comparison)).rows else []
    parts += tables.explained(data.comparison)
    beside = tables.side_tables(data.comparison)
    parts += [part for part in beside if not (isinstance(part, Sentence) and part.tone == "note")]
    parts += _notes(data)
    return markdown.render(Document(data.comparison.name, parts))


def description(data: ComparisonData) -> str:
    """Return the comparison without its name, for an MLflow run, which folds long texts after the verdict."""
    return to_markdown(data).split("\n\n", 1)[1]


def _notes(data: ComparisonData) -> Iterator[Sentence]:
    yield Sentence(_NOTE)
    if any(cell.is_disturbed for cell in data.comparison.cells):
        yield Sentence(_DISTURBED_NOTE)


def view(data: ComparisonData) -> Document:
    """Return the comparison for the terminal; verdict and advice come last, to stay on the screen."""
    parts: list[Part] = [Sentence(data.comparison.steps)] if data.comparison.steps else []
    parts += [part for found in data.findings if found.explains for part in told(found)]
    comparison = data.comparison
    found = [tables.model_table(comparison, model) for model in comparison.by_model]
    found += [tables.counter_table(comparison, place) for place in comparison.places]
    found.append(tables.estimate_table(comparison, "Estimate and measurement"))
    parts += [table for table in found if table.rows]
    parts += tables.explained(comparison)
    parts += [Points(said)] if (said := judgement(comparison)) else []
    parts += [*_legend(data), *_notes(data)]
    for failed in failed_runs(data.comparison):
        why = failed.reason.rstrip(": ")
        what = Styled(tables.FAILURES.get(failed.failure, failed.failure), "bad")
        parts.append(Sentence((what, f" in {failed.name}{f': {why}' if why else ''}")))
    parts += [Sentence(doubt, "warning") for doubt in data.doubts]
    parts += answered(data.comparison)
    last = [found for found in reversed(data.findings) if not found.explains]
    parts += [part for found in last for part in told(found)]
    return Document(data.comparison.name, parts)


def _legend(data: ComparisonData) -> Iterator[Sentence]:
    trainers = dict.fromkeys(cell.trainer for cell in data.comparison.cells)
    named = [f"{short_name(name)} is {name}" for name in trainers if short_name(name) != name]
    if named:
        yield Sentence(f"{', '.join(named)}.", "note")
    if any(len(place) > 2 for place in data.comparison.places):
        words = ", ".join(word for pair in WORDS.values() for word in pair)
        yield Sentence(
            f"{words}: among the DP trainers at one place, where nothing else comes close.", "note"
        )
