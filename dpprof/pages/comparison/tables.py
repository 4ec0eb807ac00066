"""Tables of a comparison for page, Markdown and terminal."""

from collections.abc import Iterable, Sequence
from functools import partial

from dpprof.config.flat import trainers_options
from dpprof.findings.comparison import side_tables as beside
from dpprof.findings.comparison.comparison import Comparison
from dpprof.findings.comparison.data import ComparisonData
from dpprof.findings.comparison.models import short_count
from dpprof.findings.comparison.rows import MEASURES, WORDS, CellRow, ModelRows
from dpprof.pages import document as doc
from dpprof.record.figures.names import CAPACITY, FITS, IQR, PEAK, SAMPLES, STEP
from dpprof.record.figures.results import FINISHED
from dpprof.record.figures.verdicts import CANNOT_TELL, FAIL, PASS
from dpprof.record.record import FailureKind
from dpprof.vocabulary.colors import trainer_color, words
from dpprof.vocabulary.formats import number, signed, two, whole

DISTURBED = " (disturbed)"
_percent = partial(signed, digits=2)
FAILURES = {
    FailureKind.OOM.value: "out of memory",
    FailureKind.TIMEOUT.value: "timed out",
    FailureKind.ERROR.value: "failed",
}
_CHECKED: dict[str, doc.Style] = {PASS: "good", CANNOT_TELL: "doubtful", FAIL: "bad"}
_WHERE: list[doc.ColumnOf] = [
    ("model", str, lambda row: row.where.model),
    ("place", str, lambda row: row.where.place),
    ("trainer", str, lambda row: doc.TrainerName(row.where.trainer)),
]
_NOTES = {
    "privacy": (
        "What all steps together spend, if every one takes each sample of the data set independently with "
        "the sample rate (Poisson sampling); the warnings above tell what else holds."
    ),
    "flops": (
        "In theory: what the algorithm needs for all linear layers and convolutions, from their shapes "
        "alone. Counted: what the ledger saw operators do, fused attention left out; what other modules "
        "compute is counted and not in theory. x is the theory's ratio to standard."
    ),
    "counters": (
        "Counted by Nsight Compute over the kernels of one step, each replayed alone; copies and fills by "
        "the copy engines are not kernels and not included. x is the ratio to standard. DRAM / ledger "
        "compares what reached DRAM with what operators request: below 1, caches absorbed the rest."
    ),
    "pairs": (
        "The same experiments estimated on fake tensors and measured. A step's time is predicted from those "
        "of its operators; this is shown if the runs were measured on the device that was estimated."
    ),
}


def side_tables(comparison: Comparison) -> list[doc.Part]:
    """Return the non-empty tables besides the cells, each with a heading and a note."""
    counters, failures = beside.counter_rows(comparison), beside.failed_runs(comparison)
    of_failure: doc.Columns = [("run", str), ("failure", str), ("reason", str)]
    made = [
        ("Privacy of the whole training", _privacy_table(comparison)),
        ("FLOPs of a step, attention apart", _flop_table(comparison)),
        ("Hardware counters of one step", counter_table(counters)),
        ("Estimate and measurement", estimate_table(beside.pairs(comparison))),
        ("What failed", doc.table("", of_failure, failures, name="failures")),
    ]
    parts: list[doc.Part] = []
    for title, shown in made:
        if shown.rows:
            parts += [doc.Heading(title), shown]
            said = beside.judgement(counters) if shown.name == "counters" else []
            parts += [doc.Points(said)] if said else []
            parts += [doc.Sentence(_NOTES[shown.name], "note")] if shown.name in _NOTES else []
    return parts


def cell_table(data: ComparisonData) -> doc.Table:
    """Return a row per cell: settings, step time, peak and throughput, with ratios."""
    comparison = data.comparison
    settings = {"seq_len": "seq", "batch_size": "batch"}
    settings |= {name: name for name in [*comparison.varying, "trainer"] if name != "precision"}
    columns: list[doc.ColumnOf] = [
        ("model", str, _model),
        ("precision", str, lambda row: comparison.precision(row.cell)),
        *(
            (shown, str, lambda row, name=name: str(row.cell.settings.get(name, "")))
            for name, shown in settings.items()
        ),
        ("step ms", doc.figure, _step),
        ("x", doc.figure, _time_ratio),
        ("peak MiB", number, lambda row: row.cell.peak_mib),
        ("x", two, lambda row: row.bars["peak_memory"].ratio),
        ("samples/s", number, lambda row: row.cell.figures.get(SAMPLES)),
    ]
    if len(comparison.sources) > 1:
        columns.insert(0, ("source", str, lambda row: row.cell.source))
    if any(cell.gradient_check for cell in comparison.cells):
        columns.append(("gradient check", doc.figure, lambda row: row.cell.gradient_check or ""))
    return doc.table_of(data.rows, columns, name="cells")


def model_table(data: ComparisonData, found: ModelRows) -> doc.Table:
    """Return a row per trainer at each place of one model, with bars and words for the best and the worst."""
    columns: list[doc.ColumnOf] = [
        ("trainer", str, lambda row: _trainer(row, data.comparison.varying)),
        ("step ms", doc.figure, lambda row: _failed(row) or _step(row)),
        ("x", doc.figure, _time_ratio),
        ("", str, lambda row: _bar(found, row, "step_time")),
        ("", str, lambda row: _word(row, STEP)),
        ("peak MiB", number, lambda row: row.cell.peak_mib),
        ("x", two, lambda row: row.bars["peak_memory"].ratio),
        ("", str, lambda row: _bar(found, row, "peak_memory")),
        ("", str, lambda row: _word(row, PEAK)),
        ("on the device", str, _on_the_device),
        ("samples/s", number, lambda row: row.cell.figures.get(SAMPLES)),
        ("moved MiB", number, lambda row: row.bars["bytes_moved"].total),
        ("x", two, lambda row: row.bars["bytes_moved"].ratio),
        ("", str, lambda row: _bar(found, row, "bytes_moved")),
        ("gradient check", str, _checked),
    ]
    rows: list[CellRow] = []
    groups = {}
    for place in found.places:
        groups[len(rows)] = place.name
        rows += place.rows
    precisions = {data.comparison.precision(row.cell) for place in found.places for row in place.rows}
    if len(precisions) > 1:  # the places tell what differs in the weights
        precisions = {place.settings["precision"] for place in found.places}
    title = f"{found.model.heading}, {precisions.pop()}" if len(precisions) == 1 else found.model.heading
    name = "runs" if found is data.models[0] else ""
    return doc.table_of(rows, doc.with_content(columns, rows), title, name=name, groups=groups)


def _trainer(row: CellRow, varying: Iterable[str]) -> doc.Text:
    """Return the trainer with its own options that vary."""
    own = sorted(trainers_options(row.cell.config) & set(varying))
    return doc.TrainerName(row.cell.trainer), *(f" {name}={row.cell.settings[name]}" for name in own)


def _failed(row: CellRow) -> doc.Styled | None:
    failure = row.bars["step_time"].failure
    return doc.Styled(FAILURES.get(failure, failure), "bad") if failure else None


def _on_the_device(row: CellRow) -> doc.Styled:
    figures = row.cell.figures
    fits = figures.get(FITS, 1.0 if CAPACITY not in figures else None)
    return doc.Styled(row.cell.held_against, "doubtful" if fits is None else "good" if fits else "bad")


def _checked(row: CellRow) -> doc.Styled:
    word = row.cell.gradient_check or ""
    return doc.Styled(word, _CHECKED.get(word, "muted"))


def _bar(found: ModelRows, row: CellRow, measure: str) -> doc.Bar | str:
    bar, scale = row.bars[measure], found.scales[measure]
    if not bar.total:
        return ""
    colors = next(one for one in MEASURES if one.key == measure)
    parts = [
        doc.BarPart(value / scale, colors.color(name), f"{words(name)}: {number(value)} {colors.unit}")
        for name, value in bar.parts.items()
    ]
    return doc.Bar(bar.total / scale, color=trainer_color(row.cell.trainer), parts=parts)


def _word(row: CellRow, metric: str) -> doc.Styled:
    word = row.marks[metric]
    return doc.Styled(word, "good" if word == WORDS[metric][0] else "doubtful")


def _model(row: CellRow) -> str:
    if row.model.needs_count or row.cell.num_parameters is None:
        return row.model.label
    return f"{row.model.name} ({short_count(row.cell.num_parameters)})"


def _step(row: CellRow) -> str:
    """Return the step time with half its interquartile range, a predicted one, or the kind of failure."""
    cell, figures, predicted = row.cell, row.cell.figures, row.bars["step_time"].predicted
    if cell.status != FINISHED and STEP not in figures:
        return cell.failure or cell.status
    if predicted is not None:
        middle, least, most = map(number, predicted)
        return f"{middle} ({least} to {most})"
    spread = f" ± {number(figures[IQR] / 2)}" if IQR in figures else ""
    return number(figures.get(STEP)) + spread + (DISTURBED if cell.is_disturbed else "")


def _time_ratio(row: CellRow) -> str:
    time = row.bars["step_time"]
    return two(time.ratio) + (DISTURBED if time.ratio is not None and time.is_disturbed else "")


def _privacy_table(comparison: Comparison) -> doc.Table:
    columns: list[doc.ColumnOf] = [
        *_WHERE,
        ("sample rate", "{:.4g}".format, lambda row: row.guarantee.sample_rate),
        ("steps", whole, lambda row: row.guarantee.steps),
        ("noise multiplier", "{:g}".format, lambda row: row.guarantee.noise_multiplier),
        ("epsilon", doc.figure, lambda row: row.epsilon),
        ("delta", "{:g}".format, lambda row: row.guarantee.delta),
    ]
    return doc.table_of(beside.privacy_rows(comparison), columns, name="privacy")


def _flop_table(comparison: Comparison) -> doc.Table:
    columns: list[doc.ColumnOf] = [
        *_WHERE,
        ("GFLOP in theory", number, lambda row: row.in_theory),
        ("x", two, lambda row: row.ratio),
        ("counted", number, lambda row: row.counted),
        ("off %", _percent, lambda row: row.off_pct),
    ]
    return doc.table_of(beside.flop_rows(comparison), columns, name="flops")


def counter_table(rows: Sequence[beside.CounterRow], title: str = "") -> doc.Table:
    """Return bytes by memory level for every cell with counters; with a title, those of one place."""
    columns: list[doc.ColumnOf] = [
        *_WHERE[2 if title else 0 :],
        ("kernel ms", number, lambda row: row.kernel_ms),
    ]
    for i, (name, _, _) in enumerate(beside.EXPECTED.values()):
        columns.append((f"{name} [MiB]", number, partial(lambda i, row: row.moved[i].mib, i)))
        columns.append(("x", doc.figure, partial(_moved_ratio, index=i)))
    columns.append(("DRAM / ledger", number, lambda row: row.dram_to_ledger))
    return doc.table_of(rows, columns, title, name="counters")


def _moved_ratio(row: beside.CounterRow, index: int) -> str:
    """Return a ratio to standard, marked if outside of common expectations."""
    moved = row.moved[index]
    return f"{number(moved.ratio)} {moved.side or ''}".rstrip()


def estimate_table(found: Sequence[beside.Pair], title: str = "") -> doc.Table:
    """Return estimates beside measurements of the same experiments."""
    columns: list[doc.ColumnOf] = [
        ("run", str, lambda pair: pair.name),
        ("ledger's peak MiB", number, lambda pair: pair.ledger_mib),
        ("estimated", number, lambda pair: pair.estimated_mib),
        ("off %", _percent, lambda pair: pair.ledger_off_pct),
        ("allocator's peak MiB", number, lambda pair: pair.allocator_mib),
        ("estimated", number, lambda pair: pair.estimated_allocator_mib),
        ("off %", _percent, lambda pair: pair.allocator_off_pct),
        ("step ms", number, lambda pair: pair.step_ms),
        ("predicted", number, lambda pair: pair.predicted_ms),
        ("off %", _percent, lambda pair: pair.predicted_off_pct),
    ]
    return doc.table_of(found, columns, title, name="pairs")


def measured_table(comparison: Comparison) -> doc.Table:
    """Return how the experiments were measured, a column per source."""
    measured = beside.how_measured(comparison)
    names = dict.fromkeys(name for row in measured for name in row)
    columns: doc.Columns = [("", str)] * (1 + len(measured))
    rows = [(name, *(row.get(name, "") for row in measured)) for name in names]
    return doc.table("", columns, rows, name="measured", is_sortable=False)
