"""The memory timeline page: memory by category over one step, the peak, and the bytes moved.

A script draws the chart and lists what is alive at any moment. Without it, the page has the chart as an
image, and tables.
"""

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpprof.config.experiment import ExperimentConfig
from dpprof.findings import levels, tables
from dpprof.findings.levels import clock
from dpprof.findings.tables import TensorRow, tensor_row
from dpprof.pages import html, image, run_tables
from dpprof.pages.report import Report
from dpprof.record.figures.capacity import assumptions, doubt_words
from dpprof.record.figures.figures import Figures
from dpprof.record.figures.privacy import privacy_words
from dpprof.record.figures.results import (
    Result,
    describe_precision,
    describe_steps,
    device_name,
    estimate_held_against,
)
from dpprof.record.files import write_bytes, write_text
from dpprof.record.ledger import LedgerResult, StepTimeline
from dpprof.record.record import Record
from dpprof.vocabulary.colors import CATEGORY_COLORS, CLASS_COLORS, words
from dpprof.vocabulary.formats import short
from dpprof.vocabulary.parallel import NONE
from dpprof.vocabulary.trainers import short_name
from dpprof.vocabulary.units import MS_PER_S

_SHOWN_TENSORS = 20
_NOT_MOVED = -1


def step_data(timeline: StepTimeline, phase_s: dict[str, float]) -> dict[str, Any]:
    """Return every event and storage of the step, as columns for the script.

    Phases are as wide as in `phase_s` (`levels.clock`). Categories are indices into `names`, which are in
    stacking order. `ms` has the step's start, each event and the step's end. Event i changed `category[i]` by
    `bytes[i]`, or moved these to `moved[i]` unless it is -1. `phases` are name, start and end in ms, first
    event, and the event after the last. `peak` is the peak's index in `ms`. `storages` are in order of
    creation; event i is of `storage[i]`, and the first `present` existed at the start.
    """
    names = timeline.categories
    index = {name: i for i, name in enumerate(names)}
    ms, spans = clock(timeline, phase_s)
    return {
        "names": names,
        "words": [words(name) for name in names],
        "colors": [CATEGORY_COLORS[name] for name in names],
        "ms": [short(at) for at in ms],
        "start": [timeline.start.get(name, 0) for name in names],
        "category": [index[name] for name in timeline.category],
        "bytes": timeline.num_bytes,
        "moved": [_NOT_MOVED if name is None else index[name] for name in timeline.moved_to],
        "phases": [
            (span.name, short(span.start_ms), short(span.end_ms), phase.first_event, phase.end_event)
            for span, phase in zip(spans, timeline.phases, strict=True)
        ],
        "peak": timeline.peak_event + 1,
        "storages": _storages(timeline, index),
        "storage": timeline.storage_index,
        "present": timeline.num_present,
    }


def _storages(timeline: StepTimeline, index: dict[str, int]) -> dict[str, list[Any]]:
    """Return the storages as columns; `owner` is the parameter or the module."""
    storages = timeline.storages
    rows = [tensor_row(each, was_present=i < timeline.num_present) for i, each in enumerate(storages)]
    return {
        "bytes": [each.num_bytes for each in storages],
        "category": [index[each.category] for each in storages],
        **{name: [getattr(row, name) for row in rows] for name in TensorRow._fields[2:]},
    }


@dataclass(frozen=True)
class TimelineData:
    """Data of the page. `levels` are thinned for the image; `step` is complete."""

    result: Result
    record: Record
    figures: Figures
    ledger: LedgerResult
    tables: tables.LedgerTables
    levels: levels.Levels
    step: dict[str, Any]


def compute(result: Result) -> TimelineData | None:
    """Return the data of a run's page; None if its ledger pass left none."""
    timeline, record, figures = result.folder.read_timeline(), result.record, result.figures
    if timeline is None or record is None or figures is None:
        return None
    ledger = record.ledger
    if ledger is None or figures.ledger is None:
        return None
    phase_s = {name: phase.ms / MS_PER_S for name, phase in figures.phases.items() if phase.ms is not None}
    if figures.estimate is not None:
        phase_s = {phase: time.seconds for phase, time in figures.estimate.step.by_phase.items()}
    return TimelineData(
        result=result,
        record=record,
        figures=figures,
        ledger=ledger,
        tables=tables.compute(figures, figures.ledger, ledger, timeline),
        levels=levels.compute(timeline, phase_s),
        step=step_data(timeline, phase_s),
    )


def _facts(record: Record, config: ExperimentConfig) -> dict[str, str]:
    parameters = "" if record.num_parameters is None else f", {record.num_parameters:,} parameters"
    is_alone = config.parallel == NONE
    versions = (record.environment.get(name, "?") for name in ("torch_version", "opacus_version"))
    return {
        "trainer": f"{config.trainer} ({short_name(config.trainer)})",
        "model": config.model_title + parameters,
        f"batch{'' if is_alone else ' of a rank'} x sequence": f"{config.batch_size} x {config.seq_len}",
        **({} if is_alone else {"ranks": f"{config.world_size} ({config.parallel})"}),
        "precision": describe_precision(config, record.weights_dtype),
        "parameters that train": config.train,
        "training loop": config.loop,
        "activation checkpointing": "yes" if config.activation_checkpointing else "no",
        "device": _device(record, config),
        "torch / Opacus": " / ".join(versions),
        **(
            {} if record.privacy is None else {"privacy of the whole training": privacy_words(record.privacy)}
        ),
    }


def _device(record: Record, config: ExperimentConfig) -> str:
    if config.is_estimate:
        return f"estimated for {device_name(config) or config.device}"
    return record.environment.get("gpu", record.environment.get("cpu", ""))


def render(data: TimelineData, picture: bytes) -> str:
    """Return one self-contained HTML page with the chart's picture."""
    config, estimate, found = data.result.config, data.figures.estimate, data.tables
    doubts = (doubt_words(doubt.text, doubt.num_bytes) for doubt in data.ledger.doubts)
    return html.render(
        "timeline.html",
        data=data,
        tables=found,
        picture=base64.b64encode(picture).decode(),
        title=data.result.folder.name,
        on_cpu=config.device == "cpu",
        steps=describe_steps(config),
        facts=_facts(data.record, config),
        estimate=estimate,
        times_of=data.record.environment.get("times_of"),
        held_against=estimate_held_against(estimate, config) if estimate else "",
        assumptions=[*assumptions(config, data.ledger), *doubts] if estimate else [],
        category_colors=CATEGORY_COLORS,
        class_colors=CLASS_COLORS,
        most_moved=max((row.moved_mib for row in found.by_phase), default=0) or 1,
        shown=run_tables,
        shown_tensors=_SHOWN_TENSORS,
    )


def write_timeline(result: Result) -> list[Path]:
    """Write a run's page and image, if its ledger pass left data. Returns the files."""
    folder, data, config = result.folder, compute(result), result.config
    if data is None:
        return []
    size = f"{config.model_title}, batch {config.batch_size}, sequence {config.seq_len}"
    title = f"{short_name(config.trainer)}, {size}"
    picture = image.png(image.timeline_of(data.levels, data.tables, title))
    write_bytes(folder.timeline_image, picture)
    write_text(folder.timeline_page, render(data, picture))
    return [folder.timeline_page, folder.timeline_image]


REPORTS = (Report("memory_timeline.html", version=7, write=write_timeline),)
