"""Tables of a comparison for page, Markdown and terminal."""

from collections.abc import Callable, Iterable
from functools import partial

from dpprof.config.flat import trainers_options
from dpprof.findings.comparison import side_tables as beside
from dpprof.findings.comparison.cell import Cell
from dpprof.findings.comparison.comparison import Comparison
from dpprof.findings.comparison.intervals import Ratio
from dpprof.findings.comparison.models import Model, short_count
from dpprof.findings.comparison.parts import DRAWN, color_of, length, parts
from dpprof.findings.comparison.places import full_name
from dpprof.findings.verdict.best import WORDS, marks
from dpprof.findings.verdict.extra import added
from dpprof.pages import document as doc
from dpprof.record.figures.names import (
    COLUMNS,
    DRAM_TO_LEDGER,
    FLOPS_IN_THEORY,
    FLOPS_OF_LAYERS,
    IQR,
    KERNEL_MS,
    PEAK,
    PREDICTIONS,
    STEP,
)
from dpprof.record.figures.privacy import rounded_up
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
_ADDED = (
    "At the largest batch and sequence that both finished. The largest parts are named. A difference of "
    "times is given only where it is larger than the spread, and never where runs were disturbed."
)
_TIMES = "x the step"
_ADDED_TIME = (
    f" `{_TIMES}` is the ratio of step times with its 95 % interval; from one run each, that leaves out what "
    "differs between runs."
)
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
    of_failure: doc.Columns = [("run", str), ("failure", str), ("reason", str)]
    made = [
        ("Privacy of the whole training", _privacy_table(comparison)),
        ("FLOPs of a step, attention apart", _flop_table(comparison)),
        ("Hardware counters of one step", counter_table(comparison)),
        ("Estimate and measurement", estimate_table(comparison)),
        ("What failed", doc.table("", of_failure, beside.failed_runs(comparison), name="failures")),
    ]
    parts: list[doc.Part] = []
    for title, shown in made:
        if shown.rows:
            parts += [doc.Heading(title), shown]
            said = beside.judgement(comparison) if shown.name == "counters" else []
            parts += [doc.Points(said)] if said else []
            parts += [doc.Sentence(_NOTES[shown.name], "note")] if shown.name in _NOTES else []
    return parts


def cell_table(comparison: Comparison) -> doc.Table:
    """Return a row per cell: settings and figures, with ratios to standard."""
    settings = {"seq_len": "seq", "batch_size": "batch"}
    settings |= {name: name for name in [*comparison.varying, "trainer"] if name != "precision"}
    columns: list[doc.ColumnOf] = [
        ("model", str, lambda cell: _model(comparison, cell)),
        ("precision", str, comparison.precision),
        *(
            (shown, str, lambda cell, name=name: str(cell.settings.get(name, "")))
            for name, shown in settings.items()
        ),
    ]
    for name in COLUMNS:
        columns += _figure(comparison, name)
    if len(comparison.sources) > 1:
        columns.insert(0, ("source", str, lambda cell: cell.source))
    columns.append(("gradient check", doc.figure, lambda cell: cell.gradient_check or ""))
    return doc.table_of(comparison.cells, doc.with_content(columns, comparison.cells), name="cells")


def model_table(comparison: Comparison, model: Model) -> doc.Table:
    """Return a row per trainer at each place of one model, with bars and words for the best and the worst."""
    places = comparison.by_model[model]
    cells: list[Cell] = []
    groups: dict[int, str] = {}
    words_of: dict[str, dict[int, str]] = {name: {} for name in WORDS}
    for place in places:
        groups[len(cells)] = comparison.place_name(place[0])
        for name, found in words_of.items():
            found |= zip(map(id, place), marks(place, name), strict=True)
        cells += place
    columns: list[doc.ColumnOf] = [("trainer", str, lambda cell: _trainer(cell, comparison.varying))]
    for name in COLUMNS:
        columns += _figure(comparison, name)
        if name in DRAWN:
            longest = max(length(cell, name) for cell in cells) or 1.0
            columns.append(("", str, partial(_bar, name, longest)))
        if name in WORDS:
            columns.append(("", str, partial(_word, words_of[name], WORDS[name][0])))
        if name == PEAK:
            columns.append(("on the device", str, _on_the_device))
    columns.append(("gradient check", str, _checked))
    precisions = {comparison.precision(cell) for cell in cells}
    if len(precisions) > 1:  # the places tell what differs in the weights
        precisions = {str(cell.settings["precision"]) for cell in cells}
    title = f"{model.heading}, {precisions.pop()}" if len(precisions) == 1 else model.heading
    name = "runs" if model == comparison.model(comparison.cells[0]) else ""
    return doc.table_of(cells, doc.with_content(columns, cells), title, name=name, groups=groups)


def added_table(comparison: Comparison) -> doc.Table:
    """Return what each DP trainer adds to standard training, and what that is made of."""
    rows = added(comparison)
    places = dict.fromkeys(full_name(comparison, row.cell) for row in rows)
    columns: list[doc.ColumnOf] = [
        ("trainer", str, lambda row: doc.TrainerName(row.cell.trainer)),
        ("at", str, lambda row: full_name(comparison, row.cell) if len(places) > 1 else ""),
        ("memory [MiB]", signed, lambda row: row.mib),
        ("peak in", str, lambda row: row.cell.representative[0].peak_phase or ""),
        ("by category", str, lambda row: row.categories),
        ("time [ms]", signed, lambda row: row.ms),
        (_TIMES, doc.figure, lambda row: _interval(row.ratio)),
        ("by phase", str, lambda row: row.phases),
        ("bytes moved [MiB]", signed, lambda row: row.moved_mib),
        ("by phase", str, lambda row: row.moved_phases),
        ("by operator class", str, lambda row: row.moved_classes),
    ]
    title = f"What each DP trainer adds to standard{', ' if len(places) == 1 else ''}"
    title += next(iter(places)) if len(places) == 1 else ""
    return doc.table_of(rows, doc.with_content(columns, rows), title, name="added")


def explained(comparison: Comparison) -> list[doc.Part]:
    """Return that table with what its figures mean; nothing if no DP trainer stands beside standard."""
    table = added_table(comparison)
    is_timed = any(column.heading == _TIMES for column in table.columns)
    note = _ADDED + (_ADDED_TIME if is_timed else "")
    return [table, doc.Sentence(note, "note")] if table.rows else []


def _interval(ratio: Ratio | None) -> str:
    return "" if ratio is None else f"{ratio.value:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"


def _figure(comparison: Comparison, name: str) -> list[doc.ColumnOf]:
    """Return the column of a figure, and that of its ratio to standard."""
    column = COLUMNS[name]
    shown: doc.ColumnOf = (column.title, number, _of(name))
    ratio: doc.ColumnOf = ("x", two, lambda cell: comparison.ratio(cell, name))
    if name == STEP:
        shown = (column.title, doc.figure, _step)
        ratio = ("x", doc.figure, partial(_time_ratio, comparison))
    if name == PEAK:  # what was held at a failure is no peak
        shown = (column.title, number, lambda cell: cell.peak_mib)
    return [shown, ratio] if column.has_ratio else [shown]


def _of(name: str) -> Callable[[Cell], float | None]:
    return lambda cell: cell.figures.get(name)


def _trainer(cell: Cell, varying: Iterable[str]) -> doc.Text:
    """Return the trainer with its own options that vary."""
    own = sorted(trainers_options(cell.config) & set(varying))
    return doc.TrainerName(cell.trainer), *(f" {name}={cell.settings[name]}" for name in own)


def _on_the_device(cell: Cell) -> doc.Styled:
    fits = cell.fits if cell.is_held else True
    return doc.Styled(cell.held_against, "doubtful" if fits is None else "good" if fits else "bad")


def _checked(cell: Cell) -> doc.Styled:
    word = cell.gradient_check or ""
    return doc.Styled(word, _CHECKED.get(word, "muted"))


def _bar(metric: str, longest: float, cell: Cell) -> doc.Bar | str:
    found, unit = parts(cell, metric), COLUMNS[metric].unit
    if not found:
        return ""
    stacked = [
        doc.BarPart(value / longest, color_of(metric, name), f"{words(name)}: {number(value)} {unit}")
        for name, value in found.items()
    ]
    return doc.Bar(cell.figures[metric] / longest, color=trainer_color(cell.trainer), parts=stacked)


def _word(words_of: dict[int, str], best: str, cell: Cell) -> doc.Styled:
    word = words_of[id(cell)]
    return doc.Styled(word, "good" if word == best else "doubtful")


def _model(comparison: Comparison, cell: Cell) -> str:
    model = comparison.model(cell)
    if model.needs_count or cell.num_parameters is None:
        return model.label
    return f"{model.name} ({short_count(cell.num_parameters)})"


def _step(cell: Cell) -> doc.Styled | str:
    """Return the step time with half its interquartile range, a predicted one, or how the cell failed."""
    figures, failure = cell.figures, "" if cell.finished else cell.failure or cell.status.lower()
    if failure and STEP not in figures:
        return doc.Styled(FAILURES.get(failure, failure), "bad")
    predicted = [number(figures[name]) for name in PREDICTIONS if name in figures]
    if predicted:
        middle, least, most = predicted
        return f"{middle} ({least} to {most})"
    spread = f" ± {number(figures[IQR] / 2)}" if IQR in figures else ""
    told = f" ({failure})" if failure else DISTURBED if cell.is_disturbed else ""
    return f"{number(figures.get(STEP))}{spread}{told}"


def _time_ratio(comparison: Comparison, cell: Cell) -> str:
    ratio = comparison.ratio(cell, STEP)
    is_disturbed = ratio is not None and comparison.is_disturbed_at(cell)
    return two(ratio) + (DISTURBED if is_disturbed else "")


def _where(comparison: Comparison) -> list[doc.ColumnOf]:
    return [
        ("model", str, lambda cell: comparison.model(cell).label),
        ("place", str, comparison.place_name),
        ("trainer", str, lambda cell: doc.TrainerName(cell.trainer)),
    ]


def _privacy_table(comparison: Comparison) -> doc.Table:
    columns: list[doc.ColumnOf] = [
        *_where(comparison),
        ("sample rate", "{:.4g}".format, lambda cell: cell.privacy.sample_rate),
        ("steps", whole, lambda cell: cell.privacy.steps),
        ("noise multiplier", "{:g}".format, lambda cell: cell.privacy.noise_multiplier),
        ("epsilon", doc.figure, _epsilon),
        ("delta", "{:g}".format, lambda cell: cell.privacy.delta),
    ]
    return doc.table_of([cell for cell in comparison.cells if cell.privacy], columns, name="privacy")


def _epsilon(cell: Cell) -> str:
    spent = cell.privacy
    return "none" if spent is None or spent.epsilon is None else rounded_up(spent.epsilon)


def _flop_table(comparison: Comparison) -> doc.Table:
    def theory(cell: Cell | None) -> float | None:
        return cell.figures.get(FLOPS_IN_THEORY) if cell is not None and cell.finished else None

    def ratio(cell: Cell) -> float | None:
        of_standard = theory(comparison.standard(cell))
        return (theory(cell) or 0.0) / of_standard if of_standard else None

    def off_pct(cell: Cell) -> float:
        return 100 * (cell.figures[FLOPS_OF_LAYERS] / cell.figures[FLOPS_IN_THEORY] - 1)

    columns: list[doc.ColumnOf] = [
        *_where(comparison),
        ("in theory [GFLOP]", number, lambda cell: cell.figures[FLOPS_IN_THEORY] / 1e9),
        ("x", two, ratio),
        ("counted [GFLOP]", number, lambda cell: cell.figures[FLOPS_OF_LAYERS] / 1e9),
        ("off %", _percent, off_pct),
    ]
    return doc.table_of([cell for cell in comparison.cells if theory(cell)], columns, name="flops")


def counter_table(comparison: Comparison, place: list[Cell] | None = None) -> doc.Table:
    """Return bytes by memory level for every cell with counters, or for those of one place."""
    cells = beside.counted(comparison.cells if place is None else place)
    columns, title = _where(comparison), ""
    if place is not None:
        columns = columns[2:]
        title = f"Hardware counters of one step, {full_name(comparison, place[0])}"
    columns.append(("kernels [ms]", number, _of(KERNEL_MS)))
    for metric, (name, _, _) in beside.EXPECTED.items():
        columns.append((f"{name} [MiB]", number, _of(metric)))
        columns.append(("x", doc.figure, partial(_moved_ratio, comparison, metric)))
    columns.append(("DRAM / ledger", number, _of(DRAM_TO_LEDGER)))
    return doc.table_of(cells, columns, title, name="counters")


def _moved_ratio(comparison: Comparison, metric: str, cell: Cell) -> str:
    """Return a ratio to standard, marked if outside of common expectations."""
    ratio = number(comparison.ratio(cell, metric))
    return f"{ratio} {beside.side(comparison, cell, metric)}".rstrip()


def estimate_table(comparison: Comparison, title: str = "") -> doc.Table:
    """Return estimates beside measurements of the same experiments."""
    rows = []
    for pair in beside.pairs(comparison):
        compared = (pair.tensors, pair.allocator, pair.step)
        rows.append((pair.measured.runs[0].name, *(x for one in compared for x in (*one, one.off_pct))))
    columns: list[tuple[str, Callable[..., str]]] = [("run", str)]
    for heading in ("ledger's peak [MiB]", "allocator's peak [MiB]", COLUMNS[STEP].title):
        columns += [(heading, number), ("estimated", number), ("off %", _percent)]
    return doc.table(title, columns, rows, name="pairs")


def measured_table(comparison: Comparison) -> doc.Table:
    """Return how the experiments were measured, a column per source."""
    measured = beside.how_measured(comparison)
    names = dict.fromkeys(name for row in measured for name in row)
    columns: doc.Columns = [("", str)] * (1 + len(measured))
    rows = [(name, *(row.get(name, "") for row in measured)) for name in names]
    return doc.table("", columns, rows, name="measured", is_sortable=False)
