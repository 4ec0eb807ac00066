"""Finds the largest batch, or sequence, or the fewest ranks, that fit a device's memory, for every trainer.

Every evaluation is an estimate in a process and a run folder of its own, so that an answer can be traced.
"""

import dataclasses
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from dpprof.config.experiment import ExperimentConfig
from dpprof.config.fit import ACCUMULATING, WORLD_SIZE, FitConfig
from dpprof.config.measuring import MeasuringConfig
from dpprof.drive.campaign import Campaign, Planned, RunOne, Stage
from dpprof.drive.jobs import at_a_time
from dpprof.drive.logbook import Summary
from dpprof.drive.search import BytesByEvent, Evaluation, Search, fewest_that_fit, largest_that_fits
from dpprof.drive.stop import Stopped
from dpprof.drive.sweep import shared_settings
from dpprof.errors import DpprofError, ExperimentsFailed, Interrupted
from dpprof.figures.capacity import capacity_bytes, doubt_bytes, needed_bytes
from dpprof.figures.results import FINISHED, KILLED, Result
from dpprof.record.files import write_text
from dpprof.reports.fit import Answer, rows, to_markdown
from dpprof.tracking.tracker import Tracker

# What its folder and its parent run say that they are.
FIT = "fit"
# Sizes evaluated first: one more than the degree of the step's memory as a polynomial of the size.
_STARTS = {"batch_size": (2, 4), "seq_len": (32, 64, 96)}
_MOST = 1 << 20
_MOST_RANKS = 1024


class _Failed(Exception):
    """An evaluation failed, or the doubt about it has no bound, so there is no answer."""

    def __init__(self, result: Result) -> None:
        super().__init__(result.name)
        self.result = result


@dataclass
class Fit(Campaign):
    """A search for each of several resolved experiments, in which the setting searched is a placeholder.

    `workers` searches go on at a time; what is verified is measured.
    """

    experiments: Mapping[str, ExperimentConfig]
    config: FitConfig
    workers: int
    # Whether the next larger size is shown not to fit.
    is_proven: bool = field(default=True, init=False)
    answers_by_name: dict[str, Answer] = field(default_factory=dict, init=False)
    text: str = field(default="", init=False)

    @property
    def answers(self) -> list[Answer]:
        """What was found, in the order of the experiments."""
        return [self.answers_by_name[name] for name in self.experiments if name in self.answers_by_name]

    @property
    def tags(self) -> dict[str, str]:
        """Every run bears the search's name."""
        return {"dpprof.fit": self.name}

    @property
    def has_several_models(self) -> bool:
        """Whether its experiments train different models."""
        return len({config.model_name for config in self.experiments.values()}) > 1

    def experiment_to_check(self) -> ExperimentConfig:
        """The first, at the size where its search begins."""
        return next(iter(self.experiments.values()))

    def open_parent(self, tracker: Tracker) -> str:
        """Open the parent run."""
        params = shared_settings(self.experiments) | vars(self.config)
        return tracker.start_parent(self.name, FIT, params, self.folder, earlier=None)

    def stages(self) -> Iterator[Stage]:
        """The searches, then the measuring of the sizes found, if asked for."""
        assert self.parent is not None, "opened before"
        self.folder.write_state(FIT, self.parent, ())
        yield Stage([partial(self._search, name) for name in self.experiments], self.workers)
        if self.config.verify:
            found = [name for name in self.experiments if self.answers_by_name[name].size]
            if found:
                slots = at_a_time(self.launcher, _measured(self.answers_by_name[found[0]].config))
                yield Stage([partial(self._verify, name) for name in found], slots)

    def has_failed(self) -> bool:
        """An experiment has no answer."""
        return any(answer.failure is not None for answer in self.answers)

    def summarize(self) -> Summary:
        """Write the answers as tables, unless there may be too few of them."""
        if self.interrupted:
            return Summary("stopped by the user")
        self.text, table = (
            to_markdown(self.name, self.answers, self.config),
            rows(self.answers, self.config),
        )
        files = [self.folder.path / "fit.md", self.folder.path / "fit.json"]
        write_text(files[0], self.text)
        write_text(files[1], json.dumps(table, indent=1))
        columns = {name: [row[name] for row in table] for name in table[0]}
        return Summary(self.text, files, columns)

    def raise_for_end(self) -> None:
        """Stopped, or without an answer."""
        if self.interrupted:
            raise Interrupted(f"stopped; the evaluations so far are kept in {self.folder.path}")
        failed = [answer.failure.name for answer in self.answers if answer.failure is not None]
        if failed:
            names = ", ".join(failed)
            raise ExperimentsFailed(f"{len(failed)} of {len(self.answers)} could not be searched: {names}")

    def _planned(self, name: str, run_name: str, config: ExperimentConfig) -> Planned:
        return Planned(1 + list(self.experiments).index(name), len(self.experiments), run_name, config)

    def _search(self, name: str, run_one: RunOne) -> list[Result]:
        """Find an experiment's largest size. Keeps the run that the answer rests on."""
        config, along = self.experiments[name], self.config.along
        suffix = name.removeprefix(config.run_name)
        capacity = capacity_bytes(config)
        assert capacity is not None, "checked before"
        limit = math.floor(capacity * self.config.usable)
        if self.config.logical_batch:
            config = dataclasses.replace(config, accumulation_steps=ACCUMULATING)
        results: dict[int, Result] = {}

        def evaluate(size: int) -> Evaluation:
            sized = _sized(config, along, size)
            results[size] = run_one(self._planned(name, sized.run_name + suffix, sized))
            return _evaluation(size, results[size])

        if along == WORLD_SIZE:
            self._search_ranks(name, config, suffix, evaluate, limit, results)
            return self._kept(name)
        starts = _STARTS[along]
        try:
            search = largest_that_fits(
                evaluate,
                limit,
                degree=len(starts) - 1,
                starts=starts,
                most=_MOST,
                is_proven=self.is_proven,
            )
        except _Failed as failed:
            answer = Answer(config, along, suffix, 0, len(results), failure=failed.result)
        else:
            best = results.get(search.fits)
            found_for = best.config if best else config
            answer = Answer(
                found_for,
                along,
                suffix,
                search.fits,
                len(results),
                best,
                is_open=search.is_open,
                without_headroom=self._without_headroom(search, capacity),
            )
        self.answers_by_name[name] = answer
        return self._kept(name)

    def _kept(self, name: str) -> list[Result]:
        """The run that an answer rests on, or the one that says why there is none."""
        answer = self.answers_by_name[name]
        return [result for result in (answer.best, answer.failure) if result is not None]

    def _search_ranks(
        self,
        name: str,
        config: ExperimentConfig,
        suffix: str,
        evaluate: Callable[[int], Evaluation],
        limit: int,
        results: Mapping[int, Result],
    ) -> None:
        """Find the fewest ranks."""
        try:
            found = fewest_that_fit(evaluate, limit, most=_MOST_RANKS)
        except _Failed as failed:
            answer = Answer(config, WORLD_SIZE, suffix, 0, len(results), failure=failed.result)
        else:
            best = results.get(found)
            found_for = best.config if best else config
            answer = Answer(found_for, WORLD_SIZE, suffix, found, len(results), best)
        self.answers_by_name[name] = answer

    def _without_headroom(self, search: Search, capacity: int) -> int | None:
        """The largest size that should fit all of the memory: predicted, not estimated."""
        if search.is_open or self.config.usable == 1:
            return None
        predicted = search.predict(capacity, len(_STARTS[self.config.along]) - 1, _MOST)
        return None if predicted is None else max(predicted, search.fits)

    def _verify(self, name: str, run_one: RunOne) -> list[Result]:
        """Measure the sizes that tell whether an answer holds, each in a process of its own, which may run
        out of memory.
        """
        answer = self.answers_by_name[name]
        results = []
        for size in answer.sizes_to_verify:
            config = _measured(_sized(answer.config, answer.along, size))
            run_name = f"{config.run_name}{answer.suffix}_measured"
            results.append(run_one(self._planned(name, run_name, config)))
            if results[-1].status == KILLED:
                return results
        self.answers_by_name[name] = dataclasses.replace(answer, verified=tuple(results))
        return results


def _evaluation(size: int, result: Result) -> Evaluation:
    """What an estimate says of a size. Raises Stopped or _Failed if it says nothing."""
    if result.status == KILLED:
        raise Stopped
    if result.record is None or result.record.ledger is None or result.status != FINISHED:
        raise _Failed(result)
    in_doubt = doubt_bytes(result.record.ledger)
    if in_doubt is None:
        raise _Failed(result)
    needed = needed_bytes(result.config, result.record.ledger) + in_doubt
    return Evaluation(size, needed, _levels(result, needed))


def _sized(config: ExperimentConfig, along: str, size: int) -> ExperimentConfig:
    values: dict[str, Any] = {along: size}
    return dataclasses.replace(config, **values)


def _levels(result: Result, needed: int) -> BytesByEvent:
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
    alive: BytesByEvent = np.cumsum([sum(timeline.start.values()), *changes], dtype=np.float64)
    levels: BytesByEvent = alive + (needed - alive.max())
    return levels


def _measured(config: ExperimentConfig) -> ExperimentConfig:
    """The experiment that was estimated, to be measured; each batch is the one that was estimated."""
    how = MeasuringConfig(passes="clean,memory", warmup_steps=1, measured_steps=3)
    return dataclasses.replace(_largest(config), how=how)


def _largest(config: ExperimentConfig) -> ExperimentConfig:
    """The experiment with the batch that was estimated, where Poisson sampling makes it vary."""
    if not config.poisson_sampling:
        return config
    return dataclasses.replace(config, batch_size=config.estimated_batch, poisson_sampling=False)
