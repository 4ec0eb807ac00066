"""Finds the largest batch or sequence, or the fewest ranks, that fit a device's memory, for each trainer."""

import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dpprof.config.entry_points import ACCUMULATING, WORLD_SIZE, FitConfig
from dpprof.config.experiment import ExperimentConfig
from dpprof.config.measuring import MeasuringConfig
from dpprof.drive.campaign import Campaign, Planned, RunOne, Stage
from dpprof.drive.jobs import Stopped, at_a_time
from dpprof.drive.search import BytesByEvent, Evaluation, NoTime, fewest_that_fit, largest_that_fits
from dpprof.drive.sweep import shared_settings
from dpprof.errors import DpprofError, ExperimentsFailed
from dpprof.findings.fit import Answer, rows
from dpprof.record.figures.capacity import capacity_bytes, doubt_bytes, needed_bytes
from dpprof.record.figures.results import FINISHED, KILLED, Result
from dpprof.record.record import FailureKind
from dpprof.tracking.tracker import Summary

# Sizes evaluated first: one more of them than the degree of memory as a polynomial of the size. A batch is a
# prime, so that shapes tell what grows with it.
_STARTS = {"batch_size": (13, 26), "seq_len": (32, 64, 96)}
_MOST = 1 << 20
_MOST_RANKS = 1024


class _Failed(Exception):
    """An evaluation failed or its doubt has no bound, so there is no answer."""

    def __init__(self, result: Result) -> None:
        super().__init__(result.name)
        self.result = result


class _TimedOut(_Failed, NoTime):
    """An evaluation ran into the time-out."""


@dataclass
class Searches(Campaign):
    """Searches for the size that fits, one per resolved experiment, whose own value is a placeholder.

    `workers` of them run at a time. The campaign's time-out limits each search and each estimate. With
    `is_proven`, the next size is shown not to fit. Earlier estimates are reused.
    """

    is_proven = True
    reuses_results = True

    experiments: Mapping[str, ExperimentConfig]
    config: FitConfig
    workers: int
    answers_by_name: dict[str, Answer] = field(default_factory=dict, init=False)
    evaluated: dict[str, list[Result]] = field(default_factory=dict, init=False)

    @property
    def answers(self) -> list[Answer]:
        """Answers so far, in the order of the experiments."""
        return [self.answers_by_name[name] for name in self.experiments if name in self.answers_by_name]

    @property
    def params(self) -> dict[str, object]:
        """Settings of all experiments and of the search."""
        return shared_settings(self.experiments) | vars(self.config)

    @property
    def most(self) -> int:
        """Largest size that is tried."""
        return _MOST

    def planned(self, name: str, run_name: str, config: ExperimentConfig) -> Planned:
        """Plan a run of an experiment at some size."""
        return Planned(1 + list(self.experiments).index(name), len(self.experiments), run_name, config)

    def search(self, name: str, run_one: RunOne) -> list[Result]:
        """Find an experiment's size. Keeps the run that the answer, or the lack of one, is based on."""
        config = self.experiments[name]
        suffix = name.removeprefix(config.run_name)
        capacity = capacity_bytes(config)
        assert capacity is not None, "checked before"
        if self.config.logical_batch:
            config = dataclasses.replace(config, accumulation_steps=ACCUMULATING)
        results: dict[int, Result] = {}
        timeout_s = self.drive.timeout_s
        over_at = time.monotonic() + timeout_s

        def evaluate(size: int) -> Evaluation:
            sized = dataclasses.replace(config, **dict[str, Any]({self.config.along: size}))
            left_s = max(0, math.ceil(over_at - time.monotonic())) or math.inf
            planned = self.planned(name, sized.run_name + suffix, sized)
            results[size] = run_one(dataclasses.replace(planned, timeout_s=min(left_s, timeout_s)))
            return _evaluation(self.config.along, size, results[size])

        try:
            found = self._found(evaluate, capacity, lambda: time.monotonic() < over_at)
        except _Failed as failed:
            found = {"size": 0, "failure": failed.result}
        self.evaluated[name] = list(results.values())
        best = results.get(found["size"])
        own = best.config if best else config
        found["weights_dtype"] = next((r.weights_dtype for r in results.values() if r.weights_dtype), "")
        answer = Answer(own, self.config.along, suffix, num_evaluations=len(results), best=best, **found)
        self.answers_by_name[name] = answer
        return [result for result in (answer.best, answer.failure) if result is not None]

    def _found(
        self, evaluate: Callable[[int], Evaluation], capacity: int, has_time: Callable[[], bool]
    ) -> dict[str, Any]:
        """Return the fields of Answer that a search yields. Raises _Failed."""
        limit = math.floor(capacity * self.config.usable)
        if self.config.along == WORLD_SIZE:
            return {"size": fewest_that_fit(evaluate, limit, most=_MOST_RANKS)}
        starts = _STARTS[self.config.along]
        search = largest_that_fits(
            evaluate, limit, starts=starts, most=self.most, is_proven=self.is_proven, has_time=has_time
        )
        without = None
        if not search.is_open and self.config.usable < 1:
            predicted = search.predict(capacity)
            without = None if predicted is None else max(predicted, search.fits)
        return {"size": search.fits, "is_open": search.is_open, "without_headroom": without}

    def verify(self, name: str, run_one: RunOne) -> list[Result]:
        """Measure the sizes that prove or disprove an answer. Each process may run out of memory."""
        answer = self.answers_by_name[name]
        results = []
        for size in answer.sizes_to_verify:
            config = _measured(dataclasses.replace(answer.config, **dict[str, Any]({answer.along: size})))
            run_name = f"{config.run_name}{answer.suffix}_measured"
            results.append(run_one(self.planned(name, run_name, config)))
            if results[-1].status == KILLED:
                return results
        self.answers_by_name[name] = dataclasses.replace(answer, verified=tuple(results))
        return results


@dataclass
class Fit(Searches):
    """Searches whose answers become a table. `write` returns its text and files."""

    kind = "fit"

    write: Callable[[str, Sequence[Answer], FitConfig, Path], tuple[str, list[Path]]]

    def stages(self) -> Iterator[Stage]:
        """The searches, then measurements of the sizes found, if asked for."""
        yield Stage([partial(self.search, name) for name in self.experiments], self.workers)
        answers = self.answers_by_name
        found = [name for name in self.experiments if self.config.verify and answers[name].size]
        if found:
            slots = at_a_time(self.launcher, _measured(answers[found[0]].config))
            yield Stage([partial(self.verify, name) for name in found], slots)

    def summarize(self) -> Summary:
        """Write the answers as tables, unless it was stopped."""
        if self.interrupted:
            return Summary("stopped by the user")
        text, files = self.write(self.name, self.answers, self.config, self.folder.path)
        table = rows(self.answers, self.config)
        return Summary(text, files, {name: [row[name] for row in table] for name in table[0]})

    def raise_if_failed(self) -> None:
        """Raise ExperimentsFailed if an experiment has no answer."""
        failed = [answer.failure.name for answer in self.answers if answer.failure is not None]
        if failed:
            names = ", ".join(failed)
            raise ExperimentsFailed(f"{len(failed)} of {len(self.answers)} could not be searched: {names}")


def _evaluation(along: str, size: int, result: Result) -> Evaluation:
    """Read an estimate as an evaluation. Raises Stopped, or _Failed if it has no bounded figure."""
    if result.status == KILLED:
        raise Stopped
    if result.failure is not None and result.failure.kind == FailureKind.TIMEOUT:
        raise _TimedOut(result)
    if result.record is None or result.record.ledger is None or result.status != FINISHED:
        raise _Failed(result)
    in_doubt = doubt_bytes(result.record.ledger)
    if in_doubt is None:
        raise _Failed(result)
    needed = needed_bytes(result.config, result.record.ledger) + in_doubt
    levels, fixed = _levels(result, needed)
    is_told = along == "batch_size" and not result.config.poisson_sampling
    return Evaluation(size, needed, levels, fixed if is_told else None)


def _levels(result: Result, needed: int) -> tuple[BytesByEvent, BytesByEvent]:
    """Return the bytes needed after each event: those alive plus a constant surplus, doubt included.

    Also those without the storages that have a dimension of whole batches.
    """
    timeline = result.folder.read_timeline()
    if timeline is None:
        raise DpprofError(f"{result.folder.ledger} is missing")
    batch, storages = result.config.batch_size, timeline.storages
    grows = np.array([any(n and n % batch == 0 for n in one.shape) for one in storages])
    began = np.array([one.num_bytes for one in storages[: timeline.num_present]])
    changes = np.where([to is None for to in timeline.moved_to], timeline.num_bytes, 0)
    alive = np.cumsum([began.sum(), *changes], dtype=np.float64)
    growing = np.cumsum([began[grows[: len(began)]].sum(), *(changes * grows[timeline.storage_index])])
    levels: BytesByEvent = alive + (needed - alive.max())
    return levels, levels - growing


def _measured(config: ExperimentConfig) -> ExperimentConfig:
    """Return the estimated experiment as one to measure, with a fixed batch instead of Poisson sampling."""
    if config.poisson_sampling:
        config = dataclasses.replace(config, batch_size=config.estimated_batch, poisson_sampling=False)
    how = MeasuringConfig(passes="clean,memory", warmup_steps=1, measured_steps=3)
    return dataclasses.replace(config, how=how)
