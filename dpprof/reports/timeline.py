"""The memory timeline page: what fills the memory over one training step, the peak, and the bytes moved.

A script draws the chart and lists what is alive at any moment. Where it does not run, the page has the chart
as SVG, and tables with the figures.
"""

from dataclasses import dataclass
from pathlib import Path

from dpprof.config.experiment import ExperimentConfig
from dpprof.figures.capacity import assumptions, doubt_words
from dpprof.figures.estimate import EstimateFigures
from dpprof.figures.figures import Figures
from dpprof.figures.privacy import privacy_words
from dpprof.figures.ranks import RanksFigures
from dpprof.figures.results import Result, describe_steps, device_name, estimate_held_against
from dpprof.record.files import write_text
from dpprof.record.ledger import CollectiveRow, LedgerResult
from dpprof.record.record import ParameterGroup, Record
from dpprof.reports import html, image, levels, step_chart, step_data, tables, traffic_bars
from dpprof.reports.colors import category_color
from dpprof.vocabulary.parallel import NONE
from dpprof.vocabulary.trainers import short_name
from dpprof.vocabulary.units import MS_PER_S, ms

_SHOWN_TENSORS = 20
_STATIC_POINTS = 800


@dataclass(frozen=True)
class Estimate:
    """What an estimate adds to the ledger: its figures, the device that it is for, whether it fits in words,
    the least time of each phase and of communication in ms, and what all of it rests on.
    """

    figures: EstimateFigures
    device: str
    held_against: str
    floor_ms: dict[str, float]
    communication_ms: float | None
    assumptions: list[str]


@dataclass(frozen=True)
class TimelineData:
    """What the page shows. `levels` are thinned for the charts that no script draws; `step` has all.
    `num_steps` timed steps are behind the widths of the phases; 0: none are known.
    """

    title: str
    steps: str
    facts: dict[str, str]
    collectives: list[CollectiveRow]
    ranks: RanksFigures | None
    on_cpu: bool
    parameters: list[ParameterGroup]
    changed: list[str]
    tables: tables.LedgerTables
    levels: levels.Levels
    step: step_data.StepData
    traffic: list[traffic_bars.TrafficBar]
    num_steps: int
    estimate: Estimate | None
    slowdown: float | None


def compute(result: Result) -> TimelineData | None:
    """The page of a run; None if its ledger pass left no data."""
    timeline, record, figures = result.folder.read_timeline(), result.record, result.figures
    if timeline is None or record is None or figures is None:
        return None
    ledger, config = record.ledger, result.config
    if ledger is None or figures.ledger is None:
        return None
    phase_s = _phase_s(figures)
    shown = tables.compute(figures, figures.ledger, ledger, timeline)
    return TimelineData(
        title=result.folder.name,
        steps=describe_steps(config),
        facts=_facts(record, config),
        collectives=ledger.collectives,
        ranks=figures.ranks,
        on_cpu=config.device == "cpu",
        parameters=record.parameters,
        changed=record.changed,
        tables=shown,
        levels=levels.compute(timeline, phase_s, _STATIC_POINTS),
        step=step_data.compute(timeline, phase_s),
        traffic=traffic_bars.compute(ledger, [row.name for row in shown.by_phase]),
        num_steps=len(record.step_s),
        estimate=_estimate(config, figures.estimate, ledger) if figures.estimate else None,
        slowdown=figures.ledger.slowdown,
    )


def _phase_s(figures: Figures) -> dict[str, float]:
    """How wide each phase is drawn: its median time, of an estimate the least that it can take."""
    if figures.estimate is not None:
        return figures.estimate.floor_s
    return {name: phase.ms / MS_PER_S for name, phase in figures.phases.items() if phase.ms is not None}


def _estimate(config: ExperimentConfig, figures: EstimateFigures, ledger: LedgerResult) -> Estimate:
    return Estimate(
        figures=figures,
        device=device_name(config),
        held_against=estimate_held_against(figures, config),
        floor_ms={phase: ms(seconds) for phase, seconds in figures.floor_s.items()},
        communication_ms=None if figures.communication_s is None else ms(figures.communication_s),
        assumptions=[
            *assumptions(config, ledger),
            *(doubt_words(doubt.text, doubt.num_bytes) for doubt in ledger.doubts),
        ],
    )


def _short_title(config: ExperimentConfig) -> str:
    size = f"{config.model_name}, batch {config.batch_size}, sequence {config.seq_len}"
    return f"{short_name(config.trainer)}, {size}"


def _facts(record: Record, config: ExperimentConfig) -> dict[str, str]:
    parameters = "" if record.num_parameters is None else f", {record.num_parameters:,} parameters"
    return {
        "trainer": f"{config.trainer} ({short_name(config.trainer)})",
        "model": config.model_name + parameters,
        f"batch{'' if config.parallel == NONE else ' of a rank'} x sequence": (
            f"{config.batch_size} x {config.seq_len}"
        ),
        **({} if config.parallel == NONE else {"ranks": f"{config.world_size} ({config.parallel})"}),
        "precision": config.precision,
        "parameters that train": config.train,
        "training loop": config.loop,
        "activation checkpointing": "yes" if config.activation_checkpointing else "no",
        "device": _device(record, config),
        "torch / Opacus": " / ".join(
            record.environment.get(name, "?") for name in ("torch_version", "opacus_version")
        ),
        **(
            {} if record.privacy is None else {"privacy of the whole training": privacy_words(record.privacy)}
        ),
    }


def _device(record: Record, config: ExperimentConfig) -> str:
    if config.is_estimate:
        return f"estimated for {device_name(config) or config.device}"
    return record.environment.get("gpu", record.environment.get("cpu", ""))


def render(data: TimelineData) -> str:
    """One self-contained HTML page."""
    return html.render(
        "timeline.html",
        data=data,
        tables=data.tables,
        chart=step_chart.compute(data.levels),
        chart_size=(step_chart.WIDTH, step_chart.HEIGHT),
        classes=traffic_bars.legend(data.traffic),
        color=category_color,
        shown_tensors=_SHOWN_TENSORS,
    )


def write_timeline(result: Result) -> list[Path]:
    """Render the page and the image of a run, if its ledger pass left data. Returns the files."""
    folder, data = result.folder, compute(result)
    if data is None:
        return []
    image.write(folder.timeline_image, data.levels, data.tables, _short_title(result.config))
    write_text(folder.timeline_page, render(data))
    return [folder.timeline_page, folder.timeline_image]
