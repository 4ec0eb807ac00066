"""A comparison as Markdown: the verdict, then tables that read as plain text too."""

import statistics

from dpprof.figures.gradient_verdict import FAIL
from dpprof.figures.results import FINISHED
from dpprof.reports.comparison.cells import IQR, PEAK, SAMPLES, STEP, Cell, Comparison, Run, faults
from dpprof.reports.comparison.counter_ratios import LEVELS, counted, judgement
from dpprof.reports.comparison.doubts import doubts
from dpprof.reports.comparison.estimates import pairs
from dpprof.reports.comparison.models import short_count
from dpprof.reports.comparison.verdict import verdict
from dpprof.vocabulary.formats import fixed, number, signed
from dpprof.vocabulary.order import listed_first
from dpprof.vocabulary.trainers import TRAINERS

_NOTE = (
    "Step time is the median of the clean pass, ± half its interquartile range; peak is the most memory "
    "that torch's allocator handed out within a step (on the CPU recorded apart from the timed steps). "
    "Means are over finished experiments only. >= is an estimate's lower bound. "
    "x is the ratio to StandardTrainer in the same cell. "
    "1 MiB = 2^20 bytes.\n"
)
_DISTURBED = " (disturbed)"
_DISTURBED_NOTE = (
    "`disturbed` marks step times measured while other processes held the processors or the machine's pace "
    "changed, and every ratio at such a place: they do not tell how trainers differ.\n"
)


def to_markdown(comparison: Comparison) -> str:
    """The whole comparison: verdict, doubts, tables, failures."""
    steps = f"{comparison.steps}\n" if comparison.steps else ""
    parts = [
        f"# {_escape(comparison.name)}\n",
        steps,
        verdict_markdown(comparison),
        trainer_table(comparison),
    ]
    parts += [cell_table(comparison), counter_table(comparison), estimate_table(comparison)]
    disturbed = any(cell.is_disturbed for cell in comparison.cells)
    parts += [failure_table(comparison), _NOTE, _DISTURBED_NOTE if disturbed else ""]
    return "\n".join(part for part in parts if part)


def verdict_markdown(comparison: Comparison) -> str:
    """The verdict and the doubts, a paragraph each."""
    lines = []
    for found in verdict(comparison):
        lines.append(f"**{found.topic}.** {_escape(found.text)}\n")
        lines += ["".join(f"- {_escape(point)}\n" for point in found.points)] if found.points else []
    lines += [f"**Warning.** {_escape(doubt)}\n" for doubt in doubts(comparison)]
    return "\n".join(lines)


def trainer_table(comparison: Comparison) -> str:
    """Success and mean peak by trainer, over all runs."""
    rows = []
    for trainer in listed_first((cell.trainer for cell in comparison.cells), TRAINERS):
        runs = [run for cell in comparison.cells if cell.trainer == trainer for run in cell.runs]
        finished = [run for run in runs if run.status == FINISHED]
        peaks = [run.figures[PEAK] for run in finished if PEAK in run.figures]
        mean = number(statistics.fmean(peaks) if peaks else None)
        rows.append([trainer, f"{len(finished)} of {len(runs)}", mean])
    return markdown_table(["trainer", "finished", "mean peak MiB"], rows, right=2)


def cell_table(comparison: Comparison) -> str:
    """A row for every cell: where it stands, step time, peak and throughput, with ratios."""
    sources = len(comparison.sources) > 1
    is_checked = any(cell.gradient_check for cell in comparison.cells)
    before = ["source"] if sources else []
    varying = [name for name in comparison.varying if name != "precision"]
    header = [*before, "model", "precision", "seq", "batch", *varying, "trainer"]
    rows = []
    for cell in comparison.cells:
        settings, figures = cell.settings, cell.figures
        shown = [cell.source] if sources else []
        shown += [
            _model(comparison, cell),
            settings["precision"],
            str(settings["seq_len"]),
            str(settings["batch_size"]),
        ]
        shown += [*(str(settings.get(name, "")) for name in varying), cell.trainer]
        step = number(figures.get(STEP))
        if IQR in figures:
            step += f" ± {number(figures[IQR] / 2)}"
        if "floor/step_ms" in figures:
            step = f">= {number(figures['floor/step_ms'])}"
        if cell.is_disturbed:
            step += _DISTURBED
        if cell.status != FINISHED and STEP not in figures:
            step = cell.failure or cell.status
        ratio = _ratio(comparison, cell, STEP)
        shown += [step, ratio + _DISTURBED if ratio and comparison.is_disturbed_at(cell) else ratio]
        shown += [number(figures.get(PEAK)), _ratio(comparison, cell, PEAK), number(figures.get(SAMPLES))]
        shown += [cell.gradient_check or ""] if is_checked else []
        rows.append(shown)
    figures_from = len(header)
    header += ["step ms", "x", "peak MiB", "x", "samples/s"]
    header += ["gradient check"] if is_checked else []
    return markdown_table(header, rows, right=figures_from)


def counter_table(comparison: Comparison) -> str:
    """Bytes by level of the memory for every cell with hardware counters; empty if there is none."""
    found = counted(comparison)
    if not found:
        return ""
    header = ["model", "place", "trainer", "kernel ms"]
    header += [word for name, _, _ in LEVELS.values() for word in (f"{name} MiB", "x")]
    rows = [
        [
            *(row.model, row.place, row.cell.trainer, number(row.kernel_ms)),
            *(number(value) for level in row.levels for value in (level.mib, level.ratio)),
            number(row.dram_to_ledger),
        ]
        for row in found
    ]
    table = markdown_table([*header, "DRAM / ledger"], rows, right=3)
    said = "".join(f"- {line}\n" for line in judgement(found))
    return f"## Hardware counters of one step\n\n{table}\n{said}"


def estimate_table(comparison: Comparison) -> str:
    """Estimates beside the measurements of the same experiments; empty if there are no such pairs."""
    found = pairs(comparison)
    if not found:
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
        for pair in found
    ]
    return "## Estimate and measurement\n\n" + markdown_table(header, rows, right=1)


def percent(value: float | None) -> str:
    """A deviation; empty where there is none to tell."""
    return "" if value is None else signed(value, 2)


def failure_table(comparison: Comparison) -> str:
    """The runs that failed or lack a pass, with the reasons; empty if there are none."""
    rows = [[run.name, failure(run), reason(run)] for _, run in faults(comparison)]
    return "## Failures\n\n" + markdown_table(["run", "failure", "reason"], rows) if rows else ""


def failure(run: Run) -> str:
    """What of a run failed: its kind of failure, a pass, or the gradient check."""
    return run.failure or ("later pass" if run.failed_passes else "gradient check")


def reason(run: Run) -> str:
    """Why a run failed, or a pass of it, in one line."""
    reasons = [run.reason] if run.reason else []
    reasons += [f"{name} pass: {why}" for name, why in run.failed_passes.items()]
    if run.gradient_check == FAIL:
        reasons.append(f"gradient check: {run.gradient_check_reason}")
    first_lines = [why.strip().splitlines()[0] if why.strip() else "" for why in reasons]
    return "; ".join(first_lines)[:300]


def _model(comparison: Comparison, cell: Cell) -> str:
    model = comparison.model(cell)
    if model.needs_count or cell.num_parameters is None:
        return model.label
    return f"{model.name} ({short_count(cell.num_parameters)})"


def _ratio(comparison: Comparison, cell: Cell, metric: str) -> str:
    return fixed(comparison.ratio(cell, metric), 2)


def markdown_table(header: list[str], rows: list[list[str]], right: int | None = None) -> str:
    """A Markdown table, padded so that it reads as plain text too; right-aligned from column `right` on."""
    right = len(header) if right is None else right
    cells = [[_escape(text) for text in line] for line in [header, *rows]]
    widths = [max(3, *(len(line[i]) for line in cells)) for i in range(len(header))]
    rule = ["-" * width if i < right else "-" * (width - 1) + ":" for i, width in enumerate(widths)]
    padded = [
        [text.ljust(width) if i < right else text.rjust(width) for i, (text, width) in enumerate(pairs)]
        for pairs in (list(zip(line, widths, strict=True)) for line in [cells[0], rule, *cells[1:]])
    ]
    return "\n".join("| " + " | ".join(line) + " |" for line in padded) + "\n"


def _escape(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")
