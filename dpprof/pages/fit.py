"""Page of a fit: the largest batch or sequence of each trainer, and its limit."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dpprof.config.entry_points import WORLD_SIZE, FitConfig
from dpprof.findings import fit as of_fit
from dpprof.pages.document import Document, Points, Sentence, TrainerName, figure, table, told
from dpprof.pages.written import write_answer
from dpprof.vocabulary.colors import words
from dpprof.vocabulary.formats import number, whole

_CONFIRMED = {True: "yes", False: "NO", None: ""}
# A column with the key of its values.
_Column = tuple[str, Callable[..., str], str]


def write_fit(
    name: str, answers: Sequence[of_fit.Answer], fit: FitConfig, folder: Path
) -> tuple[str, list[Path]]:
    """Write the answers in all their forms; return the text and the files."""
    return write_answer(folder, "fit", page(name, answers, fit), of_fit.rows(answers, fit))


def page(name: str, answers: Sequence[of_fit.Answer], fit: FitConfig) -> Document:
    """Return the table, why some rows have no answer, and what the figures mean."""
    found = of_fit.rows(answers, fit)
    first = answers[0].config
    columns: list[_Column] = [("trainer", str, "trainer")]
    columns += [(of_fit.SIZES[size], whole, size) for size in of_fit.given_sizes(first, fit.along)]
    columns += _columns(first.poisson_sampling, of_fit.size_name(first, fit), fit, found)
    cells = [[_told(row, fit).get(key, row.get(key)) for _, _, key in columns] for row in found]
    failures = [Sentence(f"{row['trainer']}: {row['failure']}", "warning") for row in found if row["failure"]]
    answer = [
        Sentence(text, "answer")
        for text in (of_fit.answer_of(first, fit, found), *of_fit.first_choices(found))
    ]
    sizes = table("", [(heading, shown) for heading, shown, _ in columns], cells, name="sizes")
    waits = told(of_fit.waits(answers))
    notes = Points([*of_fit.explained(first, fit, found)])
    return Document(f"{name}: fit", [*answer, sizes, *failures, notes, *waits])


def _columns(is_poisson: bool, size: str, fit: FitConfig, found: Sequence[dict[str, Any]]) -> list[_Column]:
    """Return the columns that the rows need, with the keys of their values."""
    wanted = "fewest" if fit.along == WORLD_SIZE else "largest"
    is_timed = of_fit.has(found, "ms_per_sample")
    is_logical = is_timed and bool(fit.logical_batch)
    shown: list[tuple[bool, _Column]] = [
        (True, (f"{wanted} {size}", figure, "size")),
        (True, ("needs GiB", of_fit.gib_words, "needed_gib")),
        (True, ("limited by", str, "limited by")),
        (True, ("model", str, "model")),
        (True, ("precision", str, "precision")),
        (of_fit.has(found, "without_headroom"), ("without headroom", whole, "without_headroom")),
        (of_fit.has(found, "doubt_gib"), ("in doubt GiB", of_fit.gib_words, "doubt_gib")),
        (fit.along == "batch_size" and not is_poisson, ("expected batch", figure, "expected")),
        (bool(fit.logical_batch), (f"steps for {fit.logical_batch:,}", figure, "steps")),
        (is_timed and not is_logical, ("predicted ms / sample", str, "a sample")),
        (is_logical, ("predicted [s]", number, "logical_seconds")),
        (is_logical, ("least [s]", number, "logical_least")),
        (is_logical, ("most [s]", number, "logical_most")),
        (fit.verify, ("tokens/s", number, "tokens_per_s")),
        (fit.verify, ("measured GiB", of_fit.gib_words, "measured_gib")),
        (fit.verify, (f"next {size}", figure, "next_size")),
        (fit.verify, ("confirmed", str, "confirmed")),
    ]
    return [column for is_shown, column in shown if is_shown]


def _told(row: dict[str, Any], fit: FitConfig) -> dict[str, Any]:
    size, expected, steps = row[of_fit.found_name(fit)], row.get("expected_batch"), row.get("physical_steps")
    is_open = row["is_at_least"]
    rounded = row.get("round_batch_size", size)
    largest = f"{size or 0:,}{' or more (not searched further)' if is_open else ''}"
    largest += f" ({rounded:,})" if rounded != size else ""
    fewer = " or fewer" if is_open and steps and steps > 1 else ""
    limits = row["limiting_phase"]
    time, least, most = (row.get(f"{name}ms_per_sample") for name in ("", "least_", "most_"))
    return {
        "trainer": TrainerName(row["trainer"]),
        "precision": of_fit.precision_of(row),
        "limited by": f"{words(row['limiting_category'])} in {limits}" if limits else "",
        "a sample": "" if time is None else f"{number(time)} ({number(least)} to {number(most)})",
        "size": "failed" if size is None else "none fits" if size == 0 else largest,
        "expected": "" if expected is None else number(expected) + (" or more" if is_open else ""),
        "steps": "" if steps is None else f"{steps:,}{fewer}",
        "next_size": row.get("next_size") or "",
        "confirmed": _CONFIRMED[row.get("confirmed")],
    }
