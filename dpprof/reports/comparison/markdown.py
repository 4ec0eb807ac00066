"""A comparison as Markdown: the verdict, then tables that read as plain text too."""

from dpprof.figures.names import IQR, SAMPLES, STEP
from dpprof.figures.results import FINISHED
from dpprof.reports.comparison.counter_ratios import EXPECTED
from dpprof.reports.comparison.data import ComparisonData
from dpprof.reports.comparison.estimates import Pair
from dpprof.reports.comparison.models import short_count
from dpprof.reports.comparison.rows import Row
from dpprof.reports.markdown_table import escape, markdown_table
from dpprof.vocabulary.formats import fixed, number, signed
from dpprof.vocabulary.trainers import short_name

_NOTE = (
    "Step time is the median of the clean pass, ± half its interquartile range; peak is the most memory "
    "that torch's allocator handed out within a step (on the CPU recorded apart from the timed steps). "
    "Means are over finished experiments only. >= is an estimate's lower bound. "
    "x is the ratio to standard in the same cell. "
    "1 MiB = 2^20 bytes.\n"
)
_DISTURBED = " (disturbed)"
_DISTURBED_NOTE = (
    "`disturbed` marks step times measured while other processes held the processors or the machine's pace "
    "changed, and every ratio at such a place: they do not show how trainers differ.\n"
)


def to_markdown(data: ComparisonData) -> str:
    """The whole comparison: its name, then all that is told of it."""
    return f"# {escape(data.comparison.name)}\n\n{description(data)}"


def description(data: ComparisonData) -> str:
    """What is told of a comparison: verdict, doubts, tables, failures. The verdict comes first, as MLflow
    folds what is long.
    """
    comparison = data.comparison
    steps = f"{comparison.steps}\n" if comparison.steps else ""
    parts = [verdict_markdown(data), steps, *tables(data), _NOTE]
    if any(cell.is_disturbed for cell in comparison.cells):
        parts.append(_DISTURBED_NOTE)
    return "\n".join(part for part in parts if part)


def tables(data: ComparisonData) -> list[str]:
    """The tables that have something to show, with their headings."""
    made = [
        trainer_table(data),
        cell_table(data),
        privacy_table(data),
        flop_table(data),
        counter_table(data),
        estimate_table(data.pairs),
        failure_table(data),
    ]
    return [table for table in made if table]


def verdict_markdown(data: ComparisonData) -> str:
    """The verdict and the doubts, a paragraph each."""
    lines = []
    for found in data.findings:
        lines.append(f"**{found.topic}.** {escape(found.text)}\n")
        lines += ["".join(f"- {escape(point)}\n" for point in found.points)] if found.points else []
    lines += [f"**Warning.** {escape(doubt)}\n" for doubt in data.doubts]
    return "\n".join(lines)


def trainer_table(data: ComparisonData) -> str:
    """Success and mean peak by trainer, over all runs."""
    rows = [
        [_trainer(row.trainer), f"{row.num_finished} of {row.num_runs}", number(row.mean_peak_mib)]
        for row in data.trainers
    ]
    return markdown_table(["trainer", "finished", "mean peak MiB"], rows, right=2)


def _trainer(name: str) -> str:
    """The name, with the short one that sentences use."""
    short = short_name(name)
    return name if short == name else f"{name} ({short})"


def cell_table(data: ComparisonData) -> str:
    """A row for every cell: where it stands, step time, peak and throughput, with ratios."""
    comparison = data.comparison
    sources = len(comparison.sources) > 1
    is_checked = any(cell.gradient_check for cell in comparison.cells)
    varying = [name for name in comparison.varying if name != "precision"]
    header = [*(["source"] if sources else []), "model", "precision", "seq", "batch", *varying, "trainer"]
    names = ["precision", "seq_len", "batch_size", *varying, "trainer"]
    rows = []
    for row in data.rows:
        shown = [row.cell.source] if sources else []
        shown += [_model(row), *(str(row.cell.settings.get(name, "")) for name in names), *_figures(row)]
        rows.append(shown + ([row.cell.gradient_check or ""] if is_checked else []))
    figures_from = len(header)
    header += ["step ms", "x", "peak MiB", "x", "samples/s"]
    header += ["gradient check"] if is_checked else []
    return markdown_table(header, rows, right=figures_from)


def _figures(row: Row) -> list[str]:
    """Step time and peak, each with its ratio, and throughput."""
    cell, figures, time = row.cell, row.cell.figures, row.bars["step_time"]
    step = number(figures.get(STEP))
    if IQR in figures:
        step += f" ± {number(figures[IQR] / 2)}"
    if time.floor is not None:
        step = f">= {number(time.floor)}"
    if cell.is_disturbed:
        step += _DISTURBED
    if cell.status != FINISHED and STEP not in figures:
        step = cell.failure or cell.status
    ratio = fixed(time.ratio, 2)
    return [
        step,
        ratio + _DISTURBED if ratio and time.is_disturbed else ratio,
        number(cell.peak_mib),
        fixed(row.bars["peak_memory"].ratio, 2),
        number(figures.get(SAMPLES)),
    ]


def privacy_table(data: ComparisonData) -> str:
    """The guarantee of each cell; empty where no data set was given."""
    if not data.privacy:
        return ""
    rows = [
        [
            *(row.model, row.place, _trainer(row.trainer), f"{row.guarantee.sample_rate:.4g}"),
            *(f"{row.guarantee.steps:,}", f"{row.guarantee.noise_multiplier:g}"),
            *(row.epsilon, f"{row.guarantee.delta:g}"),
        ]
        for row in data.privacy
    ]
    header = ["model", "place", "trainer", "sample rate", "steps", "noise multiplier", "epsilon", "delta"]
    return "## Privacy of the whole training\n\n" + markdown_table(header, rows, right=3)


def flop_table(data: ComparisonData) -> str:
    """FLOPs in theory beside those that were counted; empty without formulas."""
    if not data.flops:
        return ""
    rows = [
        [
            *(row.model, row.place, _trainer(row.trainer), number(row.in_theory), fixed(row.ratio, 2)),
            *(number(row.counted), signed(row.off_pct, 2)),
        ]
        for row in data.flops
    ]
    header = ["model", "place", "trainer", "GFLOP in theory", "x", "counted", "off %"]
    return "## FLOPs of a step, attention apart\n\n" + markdown_table(header, rows, right=3)


def counter_table(data: ComparisonData) -> str:
    """Bytes by level of the memory for every cell with hardware counters; empty if there is none."""
    if not data.counters:
        return ""
    header = ["model", "place", "trainer", "kernel ms"]
    header += [word for expected in EXPECTED.values() for word in (f"{expected.name} MiB", "x")]
    rows = [
        [
            *(row.model, row.place, row.trainer, number(row.kernel_ms)),
            *(number(value) for moved in row.moved for value in (moved.mib, moved.ratio)),
            number(row.dram_to_ledger),
        ]
        for row in data.counters
    ]
    table = markdown_table([*header, "DRAM / ledger"], rows, right=3)
    said = "".join(f"- {line}\n" for line in data.judgement)
    return f"## Hardware counters of one step\n\n{table}\n{said}"


def estimate_table(pairs: list[Pair]) -> str:
    """Estimates beside the measurements of the same experiments; empty if there are no such pairs."""
    if not pairs:
        return ""
    header = ["run", "ledger's peak MiB", "estimated", "off %", "allocator's peak MiB", "estimated", "off %"]
    header += ["step ms", "x the floor"]
    rows = [
        [
            pair.name,
            *(number(pair.ledger_mib), number(pair.estimated_mib), percent(pair.ledger_off_pct)),
            *(number(pair.allocator_mib), number(pair.estimated_allocator_mib)),
            percent(pair.allocator_off_pct),
            *(number(pair.step_ms), number(pair.to_floor)),
        ]
        for pair in pairs
    ]
    return "## Estimate and measurement\n\n" + markdown_table(header, rows, right=1)


def percent(value: float | None) -> str:
    """A deviation; empty where there is none to tell."""
    return "" if value is None else signed(value, 2)


def failure_table(data: ComparisonData) -> str:
    """The runs that failed or lack a pass, with the reasons; empty if there are none."""
    rows = [[failed.name, failed.failure, failed.reason] for failed in data.failed]
    return "## Failures\n\n" + markdown_table(["run", "failure", "reason"], rows) if rows else ""


def _model(row: Row) -> str:
    if row.model.needs_count or row.cell.num_parameters is None:
        return row.model.label
    return f"{row.model.name} ({short_count(row.cell.num_parameters)})"
