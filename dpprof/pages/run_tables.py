"""Tables of one run: memory, traffic, ranks and parameters, on its page and in `dpprof show`."""

import statistics
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from dpprof.config.devices import DEVICES
from dpprof.findings import counter_tables
from dpprof.findings.tables import LedgerTables, compute
from dpprof.pages import counters, svg
from dpprof.pages import document as doc
from dpprof.record.figures.figures import RanksFigures
from dpprof.record.figures.privacy import privacy_words
from dpprof.record.figures.results import Result, describe
from dpprof.record.ledger import StepTimeline
from dpprof.record.record import ParameterGroup, Predicted, Record
from dpprof.vocabulary.colors import CATEGORY_COLORS, words
from dpprof.vocabulary.formats import fixed, number, one, two, whole
from dpprof.vocabulary.theory import LayerRow
from dpprof.vocabulary.units import mib

_ANSWERS = {None: "", True: "yes", False: "no"}


def page(
    result: Result, timeline: StepTimeline | None, num_tensors: int, num_kernels: int
) -> doc.Document | None:
    """Return all that `dpprof show` tells of a run; None without a ledger and hardware counters."""
    record, figures = result.record, result.figures
    if record is None:
        return None
    parts: list[doc.Part] = []
    if record.ledger and figures and figures.ledger and timeline is not None:
        parts += _of_ledger(compute(figures, figures.ledger, record.ledger, timeline), num_tensors)
    if record.counters is not None:
        parts += counters.parts(counter_tables.compute(record.counters, record.ledger), num_kernels)
    if not parts:
        return None
    if result.config.is_estimate:
        said = (doc.Styled("nothing was run"), f", these are fake tensors: {describe(result)}")
        parts.insert(0, doc.Sentence(said))
    return doc.Document(result.name, [*parts, *_of_training(result, record)])


def _of_ledger(found: LedgerTables, num_tensors: int) -> Iterator[doc.Part]:
    peak = doc.Styled(f"{fixed(found.held_mib, 2)} MiB")
    yield doc.Sentence(("peak ", peak, " in ", doc.Styled(found.peak_phase), f": {found.origin}"))
    if found.doubt:
        yield doc.Sentence(found.doubt, "warning")
    yield at_peak(found)
    if num_tensors and found.tensors:
        shown = min(num_tensors, len(found.tensors))
        title = f"Largest tensors at the peak ({shown} of {found.num_tensors})"
        yield tensors(found, shown, title)
    yield phases(found)
    if found.norms:
        yield norms(found)
    yield from moved(found)


def _of_training(result: Result, record: Record) -> Iterator[doc.Part]:
    figures = result.figures
    if figures is not None and figures.ranks is not None and figures.ranks.slowest is not None:
        yield ranks(figures.ranks)
    if result.predicted is not None:
        yield beside_plan(result.predicted, record)
    yield doc.Sentence((doc.Styled("precision"), f": {result.precision}"))
    if record.parameters:
        yield parameters(record.parameters)
    for text in record.changed:
        yield doc.Sentence((doc.Styled("changed for training"), f": {text}"))
    if record.privacy is not None:
        said = privacy_words(record.privacy)
        yield doc.Sentence((doc.Styled("privacy of the whole training"), f": {said}"))


def category(name: str) -> doc.Keyed:
    """Return a memory category with its colour."""
    return doc.Keyed(words(name), svg.key("square", CATEGORY_COLORS[name]))


def at_peak(found: LedgerTables, *, explained: bool = False) -> doc.Table:
    """Return the categories at the peak, on request with what each of them is."""
    longest = max((share.pct for share in found.at_peak), default=0.0) or 1.0
    rows: list[tuple[object, ...]] = [
        (category(share.category), share.mib, share.pct, doc.Bar(share.pct / longest), share.meaning)
        for share in found.at_peak
    ]
    rows.append(("together", found.held_mib, 100.0, "", ""))
    columns: doc.Columns = [("category", str), ("MiB", two), ("%", one), ("", str), ("what it is", str)]
    end = None if explained else -1
    shown = [row[:end] for row in rows]
    return doc.table("At the peak", columns[:end], shown, name="at-peak", has_total=True)


def tensors(found: LedgerTables, most: int, title: str = "") -> doc.Table:
    """Return the largest tensors at the peak."""
    names = ("category", "of", "shape", "type", "made in", "by")
    rows = [(t.mib, category(t.category), *t[2:]) for t in found.tensors[:most]]
    columns: doc.Columns = [("MiB", two), *((name, str) for name in names)]
    return doc.table(title, columns, rows, name="tensors", is_sortable=False)


def phases(found: LedgerTables) -> doc.Table:
    """Return each phase's time and peaks."""
    columns: list[doc.ColumnOf] = [
        ("phase", str, lambda row: row.phase),
        ("time [ms]", two, lambda row: row.figures.ms),
        ("ledger's peak [MiB]", two, lambda row: row.figures.peak_mib),
        ("allocator's peak [MiB]", two, lambda row: row.figures.allocator_peak_mib),
        ("most of it", str, lambda row: category(row.largest)),
    ]
    return doc.table_of(found.phases, columns, "Peak of each phase", name="phases")


def after_step(found: LedgerTables) -> doc.Table:
    """Return what stays alive after the step."""
    rows = [(category(share.category), share.mib) for share in found.after_step]
    return doc.table("After the step", [("category", str), ("MiB", two)], rows, name="after-step")


def moved(found: LedgerTables) -> list[doc.Table]:
    """Return the bytes moved by each phase and by each operator class."""
    phase: doc.ColumnOf = ("phase", str, lambda row: row.name)
    operator_class: doc.ColumnOf = ("operator class", str, lambda row: words(row.name))
    figures: list[doc.ColumnOf] = [
        ("read [MiB]", one, lambda row: row.read_mib),
        ("written [MiB]", one, lambda row: row.written_mib),
        ("GFLOP", two, lambda row: row.gflop),
        ("FLOP/byte", one, lambda row: row.intensity),
    ]
    title, rows = "Bytes moved by {}, if nothing stayed in a cache".format, [*found.by_phase, found.moved]
    return [
        doc.table_of(rows, [phase, *figures], title(phase[0]), name="moved-by-phase", has_total=True),
        doc.table_of(
            found.by_class, [operator_class, *figures], title(operator_class[0]), name="moved-by-class"
        ),
    ]


def norms(found: LedgerTables) -> doc.Table:
    """Return the forms in which norms were computed; figures are for one weight, over all its calls."""
    columns: list[doc.ColumnOf] = [
        ("layer", str, lambda alike: alike[0].name + (f" and {len(alike) - 1} like it" if alike[1:] else "")),
        ("positions", whole, lambda alike: alike[0].positions),
        ("weight", str, lambda alike: _weight(alike[0])),
        ("form", str, lambda alike: alike[0].norm),
        ("GFLOP", number, lambda alike: (alike[0].norm_flops or 0) / 1e9),
        ("MiB", number, lambda alike: mib(alike[0].norm_bytes or 0)),
        ("clipped sum [GFLOP]", number, lambda alike: (alike[0].sum_flops or 0) / 1e9),
    ]
    return doc.table_of(found.norms, columns, "Norms of per-sample gradients, by weight", name="norms")


def _weight(row: LayerRow) -> str:
    return f"{row.rows} x {row.columns}" + (f", {row.groups} groups" if row.groups > 1 else "")


def ranks(found: RanksFigures) -> doc.Table:
    """Return a row per rank: step and phases with the others, step alone, and peak."""
    title = "Ranks: a step with the others, alone, and what communication adds"
    if found.efficiency_pct is not None:
        title += f"; scaling efficiency {found.efficiency_pct:.0f} %"
    names = found.slowest.phases_ms if found.slowest is not None else {}
    columns: doc.Columns = [
        ("rank", whole),
        ("on", str),
        *((f"{name} [ms]", two) for name in ("step", "alone", "exposed")),
        ("peak [MiB]", two),
        ("in", str),
        *((f"{name} [ms]", two) for name in names),
    ]
    rows = [
        (
            rank.rank,
            rank.host,
            rank.step_ms,
            rank.alone_ms,
            rank.exposed_ms,
            rank.peak_mib,
            rank.phase or "",
            *map(rank.phases_ms.get, names),
        )
        for rank in found.each
    ]
    slowest = [i for i, rank in enumerate(found.each) if rank is found.slowest]
    return doc.table(title, columns, rows, name="ranks", bold=slowest)


def parameters(groups: Iterable[ParameterGroup]) -> doc.Table:
    """Return parameters by kind and type, and whether they train."""
    columns: doc.Columns = [
        ("kind", str),
        ("type", str),
        ("tensors", whole),
        ("numbers", whole),
        *((name, str) for name in ("train", "per-sample gradients", "moved")),
    ]
    rows = [
        (g.kind, g.dtype, g.tensors, g.numbers, *map(_ANSWERS.get, (g.trains, g.per_sample, g.moved)))
        for g in groups
    ]
    return doc.table("Parameters", columns, rows, name="parameters")


def beside_plan(predicted: Predicted, record: Record) -> doc.Table:
    """Return the planned figures, the measured ones and the deviation."""
    columns: doc.Columns = [("", str), ("plan", doc.figure), ("measured", doc.figure), ("off", doc.figure)]
    return doc.table(f"Beside {predicted.plan}", columns, beside(predicted, record))


class Beside(NamedTuple):
    """A planned figure, the measured one and the deviation, as text."""

    name: str
    planned: str
    measured: str
    off: str


def beside(predicted: Predicted, record: Record) -> list[Beside]:
    """Return the figures that the plan predicted and the run measured."""
    found = []
    peak = record.memory.peak_allocated
    if predicted.peak_bytes is not None and peak is not None:
        off = f"{peak - predicted.peak_bytes:+,} bytes"
        found.append(Beside("peak", f"{predicted.peak_bytes:,} bytes", f"{peak:,} bytes", off))
    if predicted.step_s_least is not None and predicted.step_s_most is not None and record.step_s:
        step = _step(predicted.step_s_least, predicted.step_s_most, statistics.median(record.step_s))
        device, gpu = DEVICES.get(predicted.target), record.environment.get("gpu", "")
        if device is not None and not device.is_named(gpu):
            step = step._replace(off=f"not compared: the plan is for {predicted.target}")
        found.append(step)
    return found


def _step(least: float, most: float, measured: float) -> Beside:
    if least == most:
        planned, off = f"{number(least)} s", f"{100 * (measured / least - 1):+.1f} %"
    else:
        planned = f"{number(least)} to {number(most)} s"
        nearest = min(max(measured, least), most)
        off = "within" if nearest == measured else f"{100 * (measured / nearest - 1):+.1f} %"
    return Beside("step", planned, f"{number(measured)} s", off)
