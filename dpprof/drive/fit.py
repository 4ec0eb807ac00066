"""Finds the largest batch, or sequence, that fits a device's memory, for every trainer of a grid.

Every evaluation is an estimate in a process and a run folder of its own, so that an answer can be traced.
"""

import dataclasses
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np

from dpprof.config.drive import DriveConfig
from dpprof.config.experiment import ExperimentConfig
from dpprof.config.fit import FitConfig
from dpprof.config.measuring import MeasuringConfig
from dpprof.drive.campaign import Watcher, shared_settings
from dpprof.drive.run import drive_experiment
from dpprof.drive.search import Evaluation, Levels, largest_that_fits
from dpprof.drive.workers import run_jobs
from dpprof.errors import ConfigError, DpprofError, ExperimentsFailed, Interrupted, TrackingError
from dpprof.figures.capacity import capacity_bytes, doubt_bytes, needed_bytes
from dpprof.figures.results import FAILED, FINISHED, KILLED, Result
from dpprof.record.folder import SweepFolder, write_text
from dpprof.reports.fit import Answer, rows, to_markdown
from dpprof.tracking.tracker import Tracker

# Sizes evaluated first: one more than the degree of the step's memory as a polynomial of the size.
_STARTS = {"batch_size": (2, 4), "seq_len": (32, 64, 96)}
_MOST = 1 << 20
# Any more physical batches in a logical one hold the same memory as two.
_ACCUMULATING = 2


@dataclass
class Fit:
    """A named search over resolved experiments, in which the setting searched is a placeholder.

    `workers` searches go on at a time.
    """

    name: str
    experiments: Mapping[str, ExperimentConfig]
    config: FitConfig
    drive: DriveConfig
    workers: int
    answers: list[Answer] = field(default_factory=list)

    @property
    def folder(self) -> SweepFolder:
        """Where the run folders of the evaluations lie."""
        return SweepFolder(Path(self.drive.runs_dir) / self.name)

    def check(self) -> None:
        """Raises ConfigError if the name is taken."""
        if self.folder.path.exists():
            raise ConfigError(f"sweep_name: got {self.name!r}, allowed: a new name")


class _Stopped(Exception):
    """The user stopped an evaluation."""


class _Failed(Exception):
    """An evaluation failed, or nothing bounds what is in doubt, so that there is no answer."""

    def __init__(self, result: Result) -> None:
        super().__init__(result.name)
        self.result = result


def run_fit(fit: Fit, tracker: Tracker, watcher: Watcher) -> str:
    """Search every experiment's largest size, verify those found if asked to, and log what came of it.

    Returns the answers as Markdown, which is in the folder too. Raises Interrupted if the user stopped it,
    TrackingError if MLflow is not there.
    """
    parent = tracker.start_parent(
        fit.name, "fit", shared_settings(fit.experiments) | vars(fit.config), earlier=None
    )
    try:
        _search_all(fit, watcher)
    except (KeyboardInterrupt, _Stopped):
        _close(tracker, parent, KILLED, "stopped by the user")
        raise Interrupted(f"stopped; the evaluations so far are kept in {fit.folder.path}") from None
    except Exception as error:
        _close(tracker, parent, FAILED, f"stopped: {error}")
        raise
    text, table = to_markdown(fit.name, fit.answers, fit.config), rows(fit.answers, fit.config)
    files = [fit.folder.path / "fit.md", fit.folder.path / "fit.json"]
    write_text(files[0], text)
    write_text(files[1], json.dumps(table, indent=1))
    has_failed = any(answer.failure is not None for answer in fit.answers)
    try:
        for result in _behind(fit.answers):
            tracker.log_result(result, {"dpprof.fit": fit.name}, parent)
        columns = {name: [row[name] for row in table] for name in table[0]}
        tracker.finish_parent(parent, FAILED if has_failed else FINISHED, text, files, columns)
    except TrackingError as error:
        raise TrackingError(f"{error}. The answers are kept in {files[0]}") from error
    return text


def raise_for(fit: Fit) -> None:
    """Raise what the command should end with, if an experiment has no answer."""
    failed = [answer.failure.name for answer in fit.answers if answer.failure is not None]
    if failed:
        names = ", ".join(failed)
        raise ExperimentsFailed(f"{len(failed)} of {len(fit.answers)} could not be searched: {names}")


def _close(tracker: Tracker, parent: str, status: str, why: str) -> None:
    """Close the parent run early, if MLflow is there; what stopped the search is what the user must hear."""
    with suppress(TrackingError):
        tracker.finish_parent(parent, status, why)


def _search_all(fit: Fit, watcher: Watcher) -> None:
    total = len(fit.experiments)
    jobs = [
        partial(_answer, fit, watcher, (place, total), name.removeprefix(config.run_name), config)
        for place, (name, config) in enumerate(fit.experiments.items(), start=1)
    ]
    fit.answers.extend(run_jobs(jobs, fit.workers))
    if fit.config.verify:
        for i, answer in enumerate(fit.answers):  # one at a time: measured runs disturb one another
            if answer.size:
                fit.answers[i] = _verified(fit, watcher, (i + 1, total), answer)


def _answer(
    fit: Fit, watcher: Watcher, place: tuple[int, int], suffix: str, config: ExperimentConfig, stop: Event
) -> Answer:
    along = fit.config.along
    limit = capacity_bytes(config)
    assert limit is not None, "checked before"
    if fit.config.logical_batch:
        config = dataclasses.replace(config, accumulation_steps=_ACCUMULATING)
    results: dict[int, Result] = {}

    def evaluate(size: int) -> Evaluation:
        sized = _sized(config, along, size)
        result = results[size] = _drive(fit, watcher, place, sized, sized.run_name + suffix, stop)
        if result.record is None or result.record.ledger is None or result.status != FINISHED:
            raise _Failed(result)
        in_doubt = doubt_bytes(result.record.ledger)
        if in_doubt is None:
            raise _Failed(result)
        needed = needed_bytes(sized, result.record.ledger) + in_doubt
        return Evaluation(size, needed, _levels(result, needed))

    starts = _STARTS[along]
    try:
        search = largest_that_fits(evaluate, limit, degree=len(starts) - 1, starts=starts, most=_MOST)
    except _Failed as failed:
        return Answer(config, along, suffix, 0, len(results), failure=failed.result)
    best = results.get(search.fits)
    return Answer(
        best.config if best else config,
        along,
        suffix,
        search.fits,
        len(results),
        best,
        is_open=search.is_open,
    )


def _sized(config: ExperimentConfig, along: str, size: int) -> ExperimentConfig:
    values: dict[str, Any] = {along: size}
    return dataclasses.replace(config, **values)


def _levels(result: Result, needed: int) -> Levels:
    """The bytes needed after each event of the step: those alive, and what comes on top of the peak, doubts
    among it.
    """
    timeline = result.folder.read_timeline()
    if timeline is None:
        raise DpprofError(f"{result.folder.ledger} is missing")
    changes = [
        0 if moved_to else num_bytes
        for num_bytes, moved_to in zip(timeline.num_bytes, timeline.moved_to, strict=True)
    ]
    alive: Levels = np.cumsum([sum(timeline.start.values()), *changes], dtype=np.float64)
    levels: Levels = alive + (needed - alive.max())
    return levels


def _verified(fit: Fit, watcher: Watcher, place: tuple[int, int], answer: Answer) -> Answer:
    """Measure the sizes that tell whether the answer holds, each in a process of its own, which may run out
    of memory.
    """
    how = MeasuringConfig(passes="clean,memory", warmup_steps=1, measured_steps=3)
    sized = [_largest(_sized(answer.config, answer.along, size)) for size in answer.sizes_to_verify]
    configs = [dataclasses.replace(config, how=how) for config in sized]
    names = [f"{config.run_name}{answer.suffix}_measured" for config in configs]
    pairs = zip(configs, names, strict=True)
    results = [_drive(fit, watcher, place, config, name, Event()) for config, name in pairs]
    return dataclasses.replace(answer, verified=tuple(results))


def _largest(config: ExperimentConfig) -> ExperimentConfig:
    """The experiment with the batch that was estimated, where Poisson sampling makes it vary."""
    if not config.poisson_sampling:
        return config
    return dataclasses.replace(config, batch_size=config.estimated_batch, poisson_sampling=False)


def _drive(
    fit: Fit, watcher: Watcher, place: tuple[int, int], config: ExperimentConfig, name: str, stop: Event
) -> Result:
    if stop.is_set():
        raise _Stopped
    watcher.started(*place, name)
    folder = fit.folder.run(name)
    result = drive_experiment(config, folder, fit.drive, partial(watcher.line, name), stop)
    watcher.ended(result)
    if result.status == KILLED:
        raise _Stopped
    return result


def _behind(answers: list[Answer]) -> Iterator[Result]:
    """The runs behind the answers: the estimate of each, and what was measured."""
    for answer in answers:
        yield from (result for result in (answer.best, answer.failure) if result is not None)
        yield from answer.verified
