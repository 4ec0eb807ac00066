"""The memory timeline page: what fills the memory over one training step, the peak, and the bytes moved.

`figures.py` draws the two charts; the tables beside them hold their figures, so that the page can be read
without JavaScript.
"""

from dataclasses import dataclass
from pathlib import Path

from dpprof.config.experiment import ExperimentConfig
from dpprof.figures.capacity import doubt_words, floor_s, reservations
from dpprof.figures.metrics import UNTRACKED, metrics, part
from dpprof.figures.results import Result, describe_steps, device_name, held_against
from dpprof.record.folder import RunFolder, write_text
from dpprof.record.ledger import LedgerResult, TrafficRow
from dpprof.record.record import Record
from dpprof.reports import html, image, levels, tables
from dpprof.reports.colors import CATEGORY_COLORS
from dpprof.reports.figures import memory_figure, traffic_figure

_SHOWN_TENSORS = 20


@dataclass(frozen=True)
class Estimate:
    """What an estimate adds to the ledger: MiB beyond the tensors, MiB in doubt, whether it fits, in words,
    and the least time of each phase in ms.
    """

    added_mib: dict[str, float]
    needed_mib: float
    doubt_mib: dict[str, float]
    held_against: str
    floor_ms: dict[str, float]
    reservations: list[str]


@dataclass(frozen=True)
class Page:
    """What the page shows. `num_steps` timed steps are behind the widths of the phases; 0: none are known."""

    title: str
    steps: str
    facts: dict[str, str]
    tables: tables.LedgerTables
    levels: levels.Levels
    traffic: list[TrafficRow]
    num_steps: int
    estimate: Estimate | None
    step_overhead: float | None


def compute(folder: RunFolder) -> Page | None:
    """The page of a run folder; None if its ledger pass left no data."""
    timeline, record = folder.read_timeline(), folder.read_record()
    if timeline is None or record is None or record.ledger is None:
        return None
    config = folder.read_config()
    phase_s = {phase: sum(seconds) / len(seconds) for phase, seconds in record.phase_s.items() if seconds}
    if config.is_estimate:
        phase_s = floor_s(config, record.ledger)
    mean_step_s = sum(record.step_s) / len(record.step_s) if record.step_s else None
    return Page(
        title=folder.name,
        steps=describe_steps(config),
        facts=_facts(record, config),
        tables=tables.compute(record, record.ledger, timeline),
        levels=levels.compute(timeline, phase_s),
        traffic=record.ledger.traffic,
        num_steps=len(record.step_s),
        estimate=_estimate(config, record, record.ledger) if config.is_estimate else None,
        step_overhead=record.ledger.step_s / mean_step_s if mean_step_s and not record.step_samples else None,
    )


def _estimate(config: ExperimentConfig, record: Record, ledger: LedgerResult) -> Estimate:
    figures = metrics(record)
    floor_ms = part(figures, "floor/", "_ms")
    floor_ms.pop("step", None)
    return Estimate(
        added_mib=part(figures, "memory/added/", "_mib"),
        needed_mib=figures["memory/needed_mib"],
        doubt_mib=part(figures, "memory/doubt/", "_mib"),
        held_against=held_against(figures, device_name(config)),
        floor_ms=floor_ms,
        reservations=[
            *reservations(config, ledger),
            *(doubt_words(doubt.text, doubt.num_bytes) for doubt in ledger.doubts),
        ],
    )


def _facts(record: Record, config: ExperimentConfig) -> dict[str, str]:
    parameters = "" if record.num_parameters is None else f", {record.num_parameters:,} parameters"
    return {
        "trainer": record.config["trainer"],
        "model": config.model_name + parameters,
        "batch x sequence": f"{record.config['batch_size']} x {record.config['seq_len']}",
        "precision": record.config["precision"],
        "training loop": config.loop,
        "activation checkpointing": "yes" if record.config["activation_checkpointing"] else "no",
        "device": _device(record, config),
        "torch / Opacus": f"{record.environment['torch_version']} / {record.environment['opacus_version']}",
    }


def _device(record: Record, config: ExperimentConfig) -> str:
    if config.is_estimate:
        return f"estimated for {device_name(config) or config.device}"
    return record.environment.get("gpu", record.environment.get("cpu", ""))


def render(page: Page) -> str:
    """One self-contained HTML page: two charts (plotly inlined) and their figures as tables."""
    traffic = traffic_figure(page.traffic, [row.name for row in page.tables.by_phase])
    return html.render(
        "timeline.html",
        page=page,
        tables=page.tables,
        memory=html.chart(memory_figure(page.levels, page.tables), "memory"),
        traffic=html.chart(traffic, "traffic", with_plotly=False),
        colors=CATEGORY_COLORS,
        untracked=UNTRACKED,
        shown_tensors=_SHOWN_TENSORS,
    )


def write_timeline(result: Result) -> list[Path]:
    """Render the page and the image of a run, if its ledger pass left data. Returns the files."""
    folder = result.folder
    page = compute(folder)
    if page is None:
        return []
    image.write(folder.timeline_image, page.levels, page.tables, page.title)
    write_text(folder.timeline_page, render(page))
    return [folder.timeline_page, folder.timeline_image]
