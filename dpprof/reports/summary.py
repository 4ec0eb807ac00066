"""The summary of a sweep: success and memory by trainer, figures by cell, ratios, failures with reasons."""

import json
import statistics
from dataclasses import asdict, dataclass

from dpprof.config import TRAINERS
from dpprof.metrics import memory_metrics, metrics, ratios
from dpprof.results import FINISHED, Result

PEAK = "memory/peak_allocated_mib"
STEP = "latency/step_ms_median"
_COLUMNS = {
    "step_ms": STEP,
    "step_ms_iqr": "latency/step_ms_iqr",
    "samples_per_s": "throughput/samples_per_s",
    "tokens_per_s": "throughput/tokens_per_s",
    "peak_mib": PEAK,
    "peak_rss_mib": "memory/peak_rss_mib",
}


@dataclass(frozen=True)
class Cell:
    """One experiment of the sweep. Figures that were not measured are None."""

    run: str
    trainer: str
    model: str
    num_parameters: int | None
    precision: str
    batch_size: int
    seq_len: int
    device: str
    status: str
    failure: str | None
    reason: str | None
    failed_passes: dict[str, str]
    figures: dict[str, float | None]
    ratios: dict[str, float]

    @property
    def place(self) -> tuple[str, str, int, int]:
        """What a cell shares with its twins of other trainers."""
        return (self.model, self.precision, self.seq_len, self.batch_size)


@dataclass(frozen=True)
class TrainerRow:
    """All cells of one trainer. The mean is over finished cells only."""

    trainer: str
    finished: int
    total: int
    mean_peak_mib: float | None


@dataclass(frozen=True)
class Summary:
    """What a sweep found."""

    name: str
    trainers: list[TrainerRow]
    cells: list[Cell]

    def to_json(self) -> str:
        """The text of `summary.json`."""
        return json.dumps(asdict(self), indent=1)


def twin_ratios(results: list[Result]) -> dict[str, dict[str, float]]:
    """`vs_standard/...` ratios by run name, for each finished run whose StandardTrainer twin finished."""
    finished = [r for r in results if r.status == FINISHED and r.record is not None]
    standard = {
        _place(r): metrics(r.record)
        for r in finished
        if r.record is not None and r.config.trainer == "StandardTrainer"
    }
    return {
        r.name: ratios(metrics(r.record), standard[_place(r)])
        for r in finished
        if r.record is not None and _place(r) in standard
    }


def summarize(name: str, results: list[Result]) -> Summary:
    """Compute the summary of some results: cells by model, precision, length and batch, then by trainer."""
    by_run = twin_ratios(results)
    order = list(TRAINERS)
    cells = sorted(
        (_cell(result, by_run.get(result.name, {})) for result in results),
        key=lambda cell: (cell.place, order.index(cell.trainer)),
    )
    trainers = []
    for trainer in TRAINERS:
        own = [cell for cell in cells if cell.trainer == trainer]
        if not own:
            continue
        finished = [cell for cell in own if cell.status == FINISHED]
        peaks = [peak for cell in finished if (peak := cell.figures["peak_mib"]) is not None]
        mean = statistics.fmean(peaks) if peaks else None
        trainers.append(TrainerRow(trainer, len(finished), len(own), mean))
    return Summary(name, trainers, cells)


def _place(result: Result) -> tuple[object, ...]:
    """What an experiment shares with its twins: every setting but the trainer."""
    return tuple(value for name, value in vars(result.config).items() if name != "trainer")


def _cell(result: Result, cell_ratios: dict[str, float]) -> Cell:
    config, record, failure = result.config, result.record, result.failure
    figures = metrics(record) if record is not None and record.clean_finished else {}
    if failure is not None:
        figures = memory_metrics(failure.memory) | figures
    return Cell(
        run=result.name,
        trainer=config.trainer,
        model=config.model_name,
        num_parameters=record.num_parameters if record else None,
        precision=config.precision,
        batch_size=config.batch_size,
        seq_len=config.seq_len,
        device=config.device,
        status=result.status,
        failure=failure.kind if failure else None,
        reason=failure.message if failure else None,
        failed_passes=record.failed_passes if record and record.clean_finished else {},
        figures={column: figures.get(metric) for column, metric in _COLUMNS.items()},
        ratios=cell_ratios,
    )


def to_markdown(summary: Summary) -> str:
    """The summary as Markdown tables."""
    parts = [f"# {summary.name}\n", _trainer_table(summary), _cell_table(summary)]
    failed = [cell for cell in summary.cells if cell.failure or cell.failed_passes]
    if failed:
        rows = [[cell.run, cell.failure or "later pass", _reason(cell)] for cell in failed]
        parts.append("## Failures\n\n" + _table(["run", "failure", "reason"], rows))
    parts.append(
        "Step time is the median of the clean pass, ± half its interquartile range; peak is the most memory "
        "that torch's allocator handed out within a step (on the CPU recorded apart from the timed steps). "
        "Means are over finished experiments only. x is the ratio to StandardTrainer in the same cell. "
        "1 MiB = 2^20 bytes.\n"
    )
    return "\n".join(parts)


def _trainer_table(summary: Summary) -> str:
    rows = [
        [row.trainer, f"{row.finished} of {row.total}", _number(row.mean_peak_mib)]
        for row in summary.trainers
    ]
    return _table(["trainer", "finished", "mean peak MiB"], rows, right=2)


def _cell_table(summary: Summary) -> str:
    header = ["model", "precision", "seq", "batch", "trainer", "step ms", "x", "peak MiB", "x", "samples/s"]
    rows = []
    for cell in summary.cells:
        shown = [_model(cell), cell.precision, str(cell.seq_len), str(cell.batch_size), cell.trainer]
        figures = cell.figures
        step = _number(figures["step_ms"])
        if figures["step_ms_iqr"] is not None:
            step += f" ± {_number(figures['step_ms_iqr'] / 2)}"
        if cell.status != FINISHED and figures["step_ms"] is None:
            step = cell.failure or cell.status
        shown += [step, _ratio(cell, STEP), _number(figures["peak_mib"]), _ratio(cell, PEAK)]
        rows.append([*shown, _number(figures["samples_per_s"])])
    return _table(header, rows, right=5)


def _model(cell: Cell) -> str:
    if cell.num_parameters is None:
        return cell.model
    return f"{cell.model} ({cell.num_parameters / 1e6:,.2f}M)"


def _reason(cell: Cell) -> str:
    reasons = [cell.reason] if cell.reason else []
    reasons += [f"{name} pass: {reason}" for name, reason in cell.failed_passes.items()]
    first_lines = [reason.strip().splitlines()[0] if reason.strip() else "" for reason in reasons]
    return "; ".join(first_lines)[:300]


def _ratio(cell: Cell, metric: str) -> str:
    value = cell.ratios.get(f"vs_standard/{metric}_ratio")
    return "" if value is None else f"{value:.2f}"


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _table(header: list[str], rows: list[list[str]], right: int | None = None) -> str:
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
