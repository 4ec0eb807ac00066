"""Tables of a comparison for page, Markdown and terminal."""

from collections.abc import Sequence

from dpprof.config.flat import trainers_options
from dpprof.findings.comparison.models import short_count
from dpprof.findings.comparison.rows import WORDS, CellRow, ModelRows
from dpprof.findings.comparison.side_tables import (
    EXPECTED,
    CountedBytes,
    CounterRow,
    FlopRow,
    Pair,
    PrivacyRow,
    Where,
)
from dpprof.pages.comparison.data import ComparisonData
from dpprof.pages.document import (
    Bar,
    Column,
    Columns,
    Heading,
    Part,
    Points,
    Sentence,
    Style,
    Styled,
    Table,
    TrainerName,
    figure,
    table,
)
from dpprof.record.figures.names import CAPACITY, FITS, IQR, PEAK, SAMPLES, STEP
from dpprof.record.figures.results import FINISHED
from dpprof.record.figures.verdicts import CANNOT_TELL, FAIL, PASS
from dpprof.record.record import FailureKind
from dpprof.vocabulary.colors import trainer_color
from dpprof.vocabulary.formats import number, signed, two, whole
from dpprof.vocabulary.trainers import short_name

DISTURBED = " (disturbed)"
FAILURES = {
    FailureKind.OOM.value: "out of memory",
    FailureKind.TIMEOUT.value: "timed out",
    FailureKind.ERROR.value: "failed",
}
_CHECKED: dict[str, Style] = {PASS: "good", CANNOT_TELL: "doubtful", FAIL: "bad"}
_WHERE: Columns = [("model", str), ("place", str), ("trainer", str)]
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
        "The same experiments estimated on fake tensors and measured. The floor is the least time of a step, "
        "from bytes over bandwidth and FLOPs over rate. It is shown if the runs were measured on the device "
        "that was estimated."
    ),
}


def side_tables(data: ComparisonData) -> list[Part]:
    """Return the non-empty tables besides the cells, each with a heading and a note."""
    made = [
        ("Privacy of the whole training", privacy_table(data.privacy)),
        ("FLOPs of a step, attention apart", flop_table(data.flops)),
        ("Hardware counters of one step", counter_table(data.counters)),
        ("Estimate and measurement", estimate_table(data.pairs)),
        ("What failed", _failure_table(data)),
    ]
    parts: list[Part] = []
    for title, shown in made:
        if shown.rows:
            parts += [Heading(title), shown]
            parts += [Points(data.judgement)] if shown.name == "counters" and data.judgement else []
            parts += [Sentence(_NOTES[shown.name], "note")] if shown.name in _NOTES else []
    return parts


def trainer_table(data: ComparisonData) -> Table:
    """Return success and mean peak by trainer, over all runs."""
    columns: Columns = [("trainer", str), ("finished", str), ("mean peak MiB", number)]
    rows = [
        (_full_name(row.trainer), f"{row.num_finished} of {row.num_runs}", row.mean_peak_mib)
        for row in data.trainers
    ]
    return table("", columns, rows, name="trainers")


def _full_name(trainer: str) -> str:
    short = short_name(trainer)
    return trainer if short == trainer else f"{trainer} ({short})"


def cell_table(data: ComparisonData) -> Table:
    """Return a row per cell: settings, step time, peak and throughput, with ratios."""
    comparison = data.comparison
    settings = {"precision": "precision", "seq_len": "seq", "batch_size": "batch"}
    settings |= {name: name for name in [*comparison.varying, "trainer"]}
    has_sources = len(comparison.sources) > 1
    is_checked = any(cell.gradient_check for cell in comparison.cells)
    columns: Columns = [
        *([Column("source")] if has_sources else []),
        ("model", str),
        *(Column(shown) for shown in settings.values()),
        ("step ms", figure),
        ("x", figure),
        ("peak MiB", number),
        ("x", two),
        ("samples/s", number),
        *([Column("gradient check", figure)] if is_checked else []),
    ]
    rows = [
        (
            *([row.cell.source] if has_sources else []),
            *(_model(row), *(str(row.cell.settings.get(name, "")) for name in settings)),
            *(_step(row), _time_ratio(row), row.cell.peak_mib, row.bars["peak_memory"].ratio),
            row.cell.figures.get(SAMPLES),
            *([row.cell.gradient_check or ""] if is_checked else []),
        )
        for row in data.rows
    ]
    return table("", columns, rows, name="cells")


def model_table(data: ComparisonData, found: ModelRows) -> Table:
    """Return a row per trainer at each place of one model, with bars and words for the best and the worst."""
    columns: Columns = [
        ("trainer", str),
        ("step ms", figure),
        ("x", figure),
        ("", str),
        ("", str),
        ("peak MiB", number),
        ("x", two),
        ("", str),
        ("", str),
        ("on the device", str),
        ("samples/s", number),
        ("gradient check", str),
    ]
    rows: list[tuple[object, ...]] = []
    groups = {}
    for place in found.places:
        groups[len(rows)] = place.name
        rows += [_trainer_row(data, found, row) for row in place.rows]
    precisions = {place.settings["precision"] for place in found.places}
    title = f"{found.model.heading}, {precisions.pop()}" if len(precisions) == 1 else found.model.heading
    return table(title, columns, rows, groups=groups)


def _trainer_row(data: ComparisonData, found: ModelRows, row: CellRow) -> tuple[object, ...]:
    cell = row.cell
    own = sorted(trainers_options(cell.config) & set(data.comparison.varying))
    time, peak = (row.bars[name] for name in ("step_time", "peak_memory"))
    failed = Styled(FAILURES.get(time.failure, time.failure), "bad") if time.failure else None
    fits = cell.figures.get(FITS, 1.0 if CAPACITY not in cell.figures else None)
    return (
        " ".join([short_name(cell.trainer), *(f"{name}={cell.settings[name]}" for name in own)]),
        *(failed or _step(row), _time_ratio(row), _bar(found, row, "step_time"), _word(row, STEP)),
        *(cell.peak_mib, peak.ratio, _bar(found, row, "peak_memory"), _word(row, PEAK)),
        Styled(cell.held_against, "doubtful" if fits is None else "good" if fits else "bad"),
        cell.figures.get(SAMPLES),
        Styled(cell.gradient_check or "", _CHECKED.get(cell.gradient_check or "", "muted")),
    )


def _bar(found: ModelRows, row: CellRow, measure: str) -> Bar | str:
    total = row.bars[measure].total
    return Bar(total / found.scales[measure], color=trainer_color(row.cell.trainer)) if total else ""


def _word(row: CellRow, metric: str) -> Styled:
    word = row.marks[metric]
    return Styled(word, "good" if word == WORDS[metric][0] else "doubtful")


def _model(row: CellRow) -> str:
    if row.model.needs_count or row.cell.num_parameters is None:
        return row.model.label
    return f"{row.model.name} ({short_count(row.cell.num_parameters)})"


def _step(row: CellRow) -> str:
    """Return the step time with half its interquartile range, a lower bound, or the kind of failure."""
    cell, figures, floor = row.cell, row.cell.figures, row.bars["step_time"].floor
    if cell.status != FINISHED and STEP not in figures:
        return cell.failure or cell.status
    if floor is not None:
        return f">= {number(floor)}"
    spread = f" ± {number(figures[IQR] / 2)}" if IQR in figures else ""
    return number(figures.get(STEP)) + spread + (DISTURBED if cell.is_disturbed else "")


def _time_ratio(row: CellRow) -> str:
    time = row.bars["step_time"]
    return two(time.ratio) + (DISTURBED if time.ratio is not None and time.is_disturbed else "")


def privacy_table(rows: Sequence[PrivacyRow]) -> Table:
    """Return the guarantee of each cell."""
    columns: Columns = [
        *_WHERE,
        ("sample rate", "{:.4g}".format),
        ("steps", whole),
        ("noise multiplier", "{:g}".format),
        ("epsilon", figure),
        ("delta", "{:g}".format),
    ]
    shown = [
        (
            *_where(row.where),
            row.guarantee.sample_rate,
            *(row.guarantee.steps, row.guarantee.noise_multiplier, row.epsilon, row.guarantee.delta),
        )
        for row in rows
    ]
    return table("", columns, shown, name="privacy")


def _where(where: Where) -> tuple[object, ...]:
    return where.model, where.place, TrainerName(where.trainer)


def flop_table(rows: Sequence[FlopRow]) -> Table:
    """Return FLOPs in theory and as counted."""
    columns: Columns = [
        *_WHERE,
        ("GFLOP in theory", number),
        ("x", two),
        ("counted", number),
        ("off %", percent),
    ]
    shown = [(*_where(row.where), row.in_theory, row.ratio, row.counted, row.off_pct) for row in rows]
    return table("", columns, shown, name="flops")


def counter_table(rows: Sequence[CounterRow], title: str = "") -> Table:
    """Return bytes by memory level for every cell with counters; with a title, those of one place."""
    left_out = 2 if title else 0
    columns: Columns = [*_WHERE[left_out:], ("kernel ms", number)]
    for name, _, _ in EXPECTED.values():
        columns = [*columns, Column(name, number, "MiB"), ("x", figure)]
    shown = [
        (
            *(*_where(row.where), row.kernel_ms)[left_out:],
            *(value for moved in row.moved for value in (moved.mib, _ratio(moved))),
            row.dram_to_ledger,
        )
        for row in rows
    ]
    return table(title, [*columns, ("DRAM / ledger", number)], shown, name="counters")


def _ratio(moved: CountedBytes) -> str:
    """Return a ratio to standard, marked if outside of common expectations."""
    return f"{number(moved.ratio)} {moved.side or ''}".rstrip()


def estimate_table(pairs: Sequence[Pair], title: str = "") -> Table:
    """Return estimates beside measurements of the same experiments."""
    columns: Columns = [
        ("run", str),
        ("ledger's peak MiB", number),
        ("estimated", number),
        ("off %", percent),
        ("allocator's peak MiB", number),
        ("estimated", number),
        ("off %", percent),
        ("step ms", number),
        ("x the floor", number),
    ]
    rows = [
        (
            *(pair.name, pair.ledger_mib, pair.estimated_mib, pair.ledger_off_pct),
            *(pair.allocator_mib, pair.estimated_allocator_mib, pair.allocator_off_pct),
            *(pair.step_ms, pair.to_floor),
        )
        for pair in pairs
    ]
    return table(title, columns, rows, name="pairs")


def percent(value: float | None) -> str:
    """Format a deviation; empty if None."""
    return "" if value is None else signed(value, 2)


def _failure_table(data: ComparisonData) -> Table:
    columns: Columns = [("run", str), ("failure", str), ("reason", str)]
    return table("", columns, [(f.name, f.failure, f.reason) for f in data.failed], name="failures")


def measured_table(data: ComparisonData) -> Table:
    """Return how the experiments were measured, a column per source."""
    names = dict.fromkeys(name for row in data.measured for name in row)
    columns: Columns = [("", str)] * (1 + len(data.measured))
    rows = [(name, *(row.get(name, "") for row in data.measured)) for name in names]
    return table("", columns, rows, name="measured", is_sortable=False)
