"""The table that answers what people come with, for page, Markdown and terminal."""

from collections.abc import Iterator

from dpprof.findings.comparison.answers import SAMPLES, Answer, LargestBatch, answers
from dpprof.findings.comparison.comparison import Comparison
from dpprof.pages import document as doc
from dpprof.record.figures.names import COLUMNS, PEAK
from dpprof.vocabulary.formats import number

_EXTRAPOLATED = (
    "`about`: lines through the peaks of two batches reach the device's memory there. `over`: they do so at "
    "more than 16 times the batch that was tried. Nothing was run there, and peaks may grow faster. `dpprof "
    "fit` searches for the largest batch."
)
_NO_TIMES = (
    "No seconds are shown, as times were disturbed or are not known. An estimate predicts them for a GPU "
    "that is named as target, or by the table that `dpprof calibrate` measures."
)
_BOUND = (
    "A predicted step is bound by what takes the most of it: moving data through memory, computing, or "
    "waiting for the host to launch operators."
)


def answered(comparison: Comparison) -> Iterator[doc.Part]:
    """Yield the table by trainer and device, and what its words mean; nothing without cells."""
    rows: list[Answer] = []
    groups = {}
    for place, found in answers(comparison):
        groups[len(rows)] = place
        rows += found
    if not rows:
        return
    columns: list[doc.ColumnOf] = [
        ("trainer", str, lambda row: doc.TrainerName(row.trainer)),
        ("largest batch", doc.figure, lambda row: _largest(row.largest)),
        (f"s for {SAMPLES:,} samples", doc.figure, _seconds),
        ("bound by", str, _bound),
        (COLUMNS[PEAK].title, number, lambda row: row.cell and row.cell.figures.get(PEAK)),
        ("at batch", doc.figure, lambda row: f"{row.cell.config.batch_size:,}" if row.cell else ""),
    ]
    shown = doc.with_content(columns, rows)
    yield doc.table_of(rows, shown, name="answers", groups=groups, is_sortable=False)
    notes = [_EXTRAPOLATED] if any(one.largest and one.largest.is_extrapolated for one in rows) else []
    notes += [_BOUND] if any(one.bound for one in rows) else []
    notes += [] if any(one.seconds for one in rows) else [_NO_TIMES]
    if notes:
        yield doc.Sentence(" ".join(notes), "note")


def _largest(found: LargestBatch | None) -> str:
    if found is None:
        return ""
    if found.is_extrapolated:
        return f"over {found.batch:,}" if found.is_more else f"about {found.batch:,}"
    runs_out = "" if found.lacking is None else f"; {found.lacking:,} does not fit"
    return f"{found.batch:,}{runs_out}" if found.batch else f"below {found.lacking:,}"


def _seconds(answer: Answer) -> str:
    if answer.seconds is None:
        return ""
    middle, least, most = map(number, answer.seconds)
    return middle if least == most else f"{middle} ({least} to {most})"


def _bound(answer: Answer) -> str:
    return "" if answer.bound is None else f"{answer.bound} ({answer.share_pct:.0f} %)"
