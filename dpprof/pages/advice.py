"""Page of an advice: the answer, every change with its figures, and the basis of these."""

from collections.abc import Sequence
from pathlib import Path

from dpprof.config.changes import ALTERS
from dpprof.findings.advice import answer as said
from dpprof.findings.advice.answer import AdviceData, change_pct, size_words
from dpprof.findings.advice.weighing import SUFFICES, Weighed
from dpprof.pages import document as doc
from dpprof.pages.written import write_answer
from dpprof.record.figures.step import LogicalStep
from dpprof.vocabulary.formats import signed, two
from dpprof.vocabulary.units import ms

_LEGEND = (
    "Differences are to the experiment as given. What alters nothing gives the same gradient; bf16 rounds "
    "products; adapters and other kinds of clipping alter what is learned. The line across a bar marks the "
    "limit."
)
_TOGETHER = (
    "Put together one after the other until they fit, the physical batch made smaller last; every step on "
    "the way is an estimate."
)
_ARITHMETIC = (
    "No option makes these changes: the bytes come from the storages of the estimated step, the FLOPs are "
    "the most that is added."
)


def write_advice(data: AdviceData, folder: Path) -> tuple[str, list[Path]]:
    """Write the advice in all its forms; return its text and the files."""
    return write_answer(folder, "advice", page(data), said.to_data(data))


def page(data: AdviceData) -> doc.Document:
    """Return an advice with its tables."""
    advice = data.advice
    alone, together = advice.ordered, [advice.together] if advice.together is not None else []
    parts: list[doc.Part] = [doc.Sentence(said.experiment(data)), doc.Sentence(said.answer(data), "answer")]
    parts += doc.told(said.waits(data))
    parts += [doc.Heading("One change at a time"), _changes(data, alone, "changes")]
    parts.append(doc.Sentence(f"{said.order(data)} {_LEGEND}", "note"))
    if together:
        parts += [
            doc.Heading("Together"),
            _changes(data, together, "together"),
            doc.Sentence(_TOGETHER, "note"),
        ]
    if data.arithmetic:
        parts += [doc.Heading("By arithmetic, not built in"), _arithmetic(data)]
        parts.append(doc.Points([f"{one.name}: {one.how}." for one in data.arithmetic]))
        parts.append(doc.Sentence(_ARITHMETIC, "note"))
    if alone or together:
        options = [f"{one.name}: `{one.options}`" for one in (*alone, *together)]
        parts += [doc.Heading("How to make them"), doc.Points(options)]
    if notes := said.notes(data):
        parts += [doc.Heading("Left out"), doc.Points(notes)]
    parts += [doc.Heading("What it rests on"), doc.Points(said.rests_on(data))]
    folders = [folder for one in (advice.given, *(w.cost for w in data.estimated)) for folder in one.folders]
    parts.append(doc.Points(list(dict.fromkeys(map(str, folders))), "The run folders of the estimates"))
    return doc.Document(f"{data.name}: advice", parts)


def _changes(data: AdviceData, changes: Sequence[Weighed], name: str) -> doc.Table:
    advice = data.advice
    times: doc.Columns = [("predicted ms", two), ("time", _pct)]
    columns: doc.Columns = [
        ("change", str),
        ("needs", size_words),
        ("of the limit" if advice.limit is not None else "of the most", str),
        ("difference", _more),
        ("FLOPs", _pct),
        ("bytes moved", _pct),
        *(times if advice.given.seconds else ()),
        ("alters", str),
        ("verdict", str),
    ]
    fits = "" if advice.limit is None else "fits" if advice.fits else "does not fit"
    rows = [_row(data, "as given", advice.given, "", fits)]
    for one in changes:
        verdict = advice.verdict(one)
        if one is advice.together:
            verdict = SUFFICES if one.cost.fits(advice.limit) else "does not fit"
        rows.append(_row(data, one.name, one.cost, ALTERS[one.alters], verdict))
    return doc.table("", columns, rows, name=name, bold=[0], is_sortable=False)


def _row(data: AdviceData, name: str, cost: LogicalStep, alters: str, verdict: str) -> tuple[object, ...]:
    given, limit = data.advice.given, data.advice.limit
    most = max(limit or 0, given.needed, *(one.cost.needed for one in data.estimated))
    bar = doc.Bar(cost.needed / most, None if limit is None else limit / most)
    more: list[float | None] = [None, None, None, None]
    if cost is not given:
        pairs = [(cost.flops, given.flops), (cost.moved, given.moved), (cost.seconds, given.seconds)]
        more = [cost.needed - given.needed, *(change_pct(now, before) for now, before in pairs)]
    times = [cost.seconds and ms(cost.seconds), more[3]] if given.seconds else []
    return name, cost.needed, bar, *more[:3], *times, alters, verdict


def _arithmetic(data: AdviceData) -> doc.Table:
    given = data.advice.given
    rows = [
        (one.name, given.needed - one.saved, -one.saved, change_pct(given.flops + one.flops, given.flops))
        for one in data.arithmetic
    ]
    columns: doc.Columns = [("change", str), ("needs", size_words), ("difference", _more), ("FLOPs", _pct)]
    return doc.table("", columns, rows, name="arithmetic", is_sortable=False)


def _more(num_bytes: int | None) -> str:
    if num_bytes is None:
        return ""
    return f"+{size_words(num_bytes)}" if num_bytes > 0 else size_words(num_bytes)


def _pct(pct: float | None) -> str:
    return "" if pct is None else f"{signed(pct)} %" if pct else "0 %"
