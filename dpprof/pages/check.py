"""Page of a check: which trainers train the model, and what to change."""

from dpprof.pages.document import ColumnOf, Document, Points, Sentence, Styled, Text, TrainerName, table_of
from dpprof.record.check import CheckAnswer, Finding
from dpprof.vocabulary.formats import listed
from dpprof.vocabulary.trainers import short_name


def page(answer: CheckAnswer, workload: str) -> Document:
    """Return a table of the trainers, and every finding as a sentence."""
    changed = [Points([f"changed: {text}" for text in answer.changed])] if answer.changed else []

    def numbers(trainer: str, is_warning: bool) -> str:
        found = [
            f"[{number}]"
            for number, one in enumerate(answer.findings, start=1)
            if trainer in one.trainers and one.is_warning is is_warning
        ]
        return ", ".join(found) or "-"

    columns: list[ColumnOf] = [
        ("trainer", str, TrainerName),
        ("one step", str, lambda trainer: "trains" if answer.trains[trainer] else Styled("fails", "bad")),
        ("to change", str, lambda trainer: numbers(trainer, False)),
        ("to know", str, lambda trainer: numbers(trainer, True)),
    ]
    findings = Points([_told(number, one) for number, one in enumerate(answer.findings, start=1)])
    found = findings if answer.findings else Sentence("nothing to change")
    parts = [Sentence(answer.seen), *changed, table_of(answer.trains, columns, name="trainers"), found]
    return Document(f"check of {workload}", parts)


def _told(number: int, finding: Finding) -> Text:
    kind = Styled("to know", "doubtful") if finding.is_warning else Styled("to change", "bad")
    also = f"; the same in {listed(finding.also)}" if finding.also else ""
    names = ", ".join(map(short_name, finding.trainers))
    return f"[{number}] ", kind, f" ({names}): {finding.text}{also}"
