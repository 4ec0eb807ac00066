"""Advises on an experiment that does not fit or is slow, from estimates of it and of changes to it."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from dpprof.config.changes import BATCH, Change, changed, possible_changes
from dpprof.config.entry_points import AdviceConfig
from dpprof.config.estimating import EstimatingConfig
from dpprof.config.experiment import ExperimentConfig
from dpprof.config.flat import parse_experiment, parse_trainers
from dpprof.config.options import COMMANDS
from dpprof.drive.campaign import Campaign, Planned, RunOne, Stage
from dpprof.drive.jobs import Stopped
from dpprof.drive.launch.launcher import Launcher
from dpprof.drive.sweep import shared_settings
from dpprof.drive.workload_check import refuse_missing_module
from dpprof.errors import ConfigError, ExperimentsFailed
from dpprof.findings.advice.answer import AdviceData
from dpprof.findings.advice.arithmetic import ByArithmetic, by_arithmetic
from dpprof.findings.advice.weighing import Combining, Weighed, Weighing, batches_to_estimate, cost_of
from dpprof.record.figures.capacity import capacity_bytes
from dpprof.record.figures.results import FINISHED, KILLED, Result
from dpprof.record.figures.step import LogicalStep
from dpprof.record.ledger import LedgerResult
from dpprof.tracking.tracker import Summary
from dpprof.vocabulary.clipping import BLOCKED
from dpprof.vocabulary.loops import DOCUMENTED
from dpprof.vocabulary.settings import fields
from dpprof.vocabulary.trainers import trainer_info

WriteAdvice = Callable[[AdviceData, Path], tuple[str, list[Path]]]
# Also tried, with another trainer that takes this option, if the experiment's own does not.
_BLOCKED_NORMS = Change("blocked norms", "norm", {"norm": BLOCKED})


@dataclass
class Advise(Campaign):
    """Advice on a resolved experiment from single `changes`; `left_out` says why others are impossible.

    `write` writes it into a folder and returns text and files. Estimates of earlier campaigns are reused.
    """

    kind = "advice"
    reuses_results = True
    experiment: ExperimentConfig
    asked: AdviceConfig
    changes: Sequence[Change]
    left_out: dict[str, str]
    write: WriteAdvice
    workers: int = 1
    given: LogicalStep | None = field(default=None, init=False)
    why_not: str = field(default="", init=False)
    alone: dict[str, Weighed] = field(default_factory=dict, init=False)
    made: AdviceData | None = field(default=None, init=False)
    _together: Weighed | None = field(default=None, init=False)
    _ledger: LedgerResult | None = field(default=None, init=False)
    _weights_dtype: str = field(default="", init=False)
    _arithmetic: Sequence[ByArithmetic] = field(default=(), init=False)

    @property
    def limit(self) -> int | None:
        """Bytes that a step may use; None if the device's memory is unknown."""
        capacity = capacity_bytes(self.experiment)
        return None if capacity is None else round(capacity * self.asked.usable)

    @property
    def advice(self) -> Weighing:
        """Costs found so far. Only once the experiment itself is estimated."""
        assert self.given is not None, "estimated before"
        names = [*(change.name for change in self.changes), BATCH]
        alone = [self.alone[name] for name in names if name in self.alone]
        return Weighing(self.given, self.limit, alone, self._together)

    def experiment_to_check(self) -> ExperimentConfig:
        """The experiment as given."""
        return self.experiment

    @property
    def params(self) -> dict[str, object]:
        """Settings of the experiment and of the advice."""
        return shared_settings({self.experiment.run_name: self.experiment}) | vars(self.asked)

    def stages(self) -> Iterator[Stage]:
        """The experiment, each change alone, then changes combined if none alone makes it fit."""
        yield Stage([partial(self._do, 1, self._estimate_given)], 1)
        if self.given is None:
            return
        last = 2 + len(self.changes)
        tasks = [
            partial(self._do, i, partial(self._estimate_alone, change))
            for i, change in enumerate(self.changes, 2)
        ]
        yield Stage([*tasks, partial(self._do, last, self._estimate_smaller_batches)], self.workers)
        if self.advice.worth_a_smaller_batch is not None:
            yield Stage([partial(self._do, last, self._estimate_with_smaller_batch)], 1)
        elif not self.advice.fits and self.advice.best is None:
            yield Stage([partial(self._do, last, self._estimate_together)], 1)

    def _do(self, index: int, work: "Callable[[_Estimates], None]", run_one: RunOne) -> list[Result]:
        estimates = _Estimates(run_one, index, 2 + len(self.changes))
        work(estimates)
        return estimates.results

    def _estimate_given(self, estimates: "_Estimates") -> None:
        self.given = estimates.cost(self.experiment)
        self.why_not = estimates.why_not
        if self.given is not None:
            last = estimates.results[-1]
            self._weights_dtype = last.weights_dtype
            self._ledger, timeline = last.record.ledger if last.record else None, last.folder.read_timeline()
            if self._ledger is not None and timeline is not None:
                self._arithmetic = by_arithmetic(self.experiment, self._ledger, timeline)

    def _estimate_alone(self, change: Change, estimates: "_Estimates") -> None:
        cost = estimates.cost(changed(self.experiment, change.settings))
        if cost is None:
            self.left_out[change.name] = estimates.why_not
        else:
            self.alone[change.name] = Weighed((change,), cost)

    def _estimate_smaller_batches(self, estimates: "_Estimates") -> None:
        """Halve the batch until it fits; once if it fits already."""
        limit = None if self.advice.fits else self.limit
        try:
            found = Combining(self.experiment, estimates.cost, limit).smaller_batch()
        except ConfigError as error:
            found, estimates.why_not = None, str(error)
        if found is None:
            self.left_out[f"smaller {BATCH}"] = estimates.why_not
        else:
            self.alone[BATCH] = found

    def _estimate_together(self, estimates: "_Estimates") -> None:
        assert self.given is not None, "estimated before"
        more = [] if "norm" in self.experiment.options else [_BLOCKED_NORMS]
        advice = self.advice
        # Those that save nothing alone come last, but may help once the peak has moved.
        changes = [change for one in (*advice.ordered, *advice.others) for change in one.changes] + more
        combining = Combining(self.experiment, estimates.cost, self.limit)
        self._together = combining.together(self.given, changes)

    def _estimate_with_smaller_batch(self, estimates: "_Estimates") -> None:
        """Keep what fits if it takes less time than the smaller batch alone."""
        advice = self.advice
        faster, best = advice.worth_a_smaller_batch, advice.best
        assert faster is not None, "looked for before"
        assert best is not None, "looked for before"
        found = Combining(self.experiment, estimates.cost, self.limit).with_smaller_batch(faster)
        if found.cost.fits(advice.limit) and found.cost.effort < best.cost.effort:
            self._together = found

    def summarize(self) -> Summary:
        """Write the advice as HTML, Markdown and JSON, unless it was stopped."""
        if self.interrupted:
            return Summary("stopped by the user")
        if self.given is None:
            return Summary(f"no advice: {self.why_not}")
        self.made = AdviceData(
            self.name,
            self.experiment,
            self.asked,
            self.advice,
            self._arithmetic,
            self.left_out,
            ledger=self._ledger,
            weights_dtype=self._weights_dtype,
        )
        return Summary(*self.write(self.made, self.folder.path))

    def raise_if_failed(self) -> None:
        """Raise ExperimentsFailed without an estimate of the experiment; a change that fails is left out."""
        if self.given is None:
            raise ExperimentsFailed(f"the experiment could not be estimated: {self.why_not}")


class _Estimates:
    """Estimates of one task. `why_not` says why the last experiment has no cost."""

    def __init__(self, run_one: RunOne, index: int, total: int) -> None:
        self.results: list[Result] = []
        self.why_not = ""
        self._run_one, self._position = run_one, (index, total)

    def cost(self, config: ExperimentConfig) -> LogicalStep | None:
        """Estimate the cost of a logical step; None if that failed. Raises Stopped if the user stopped it."""
        made = []
        for steps in batches_to_estimate(config.accumulation_steps):
            experiment = dataclasses.replace(config, accumulation_steps=steps)
            result = self._run_one(Planned(*self._position, run_name(experiment), experiment))
            self.results.append(result)
            if result.status == KILLED:
                raise Stopped
            if result.status != FINISHED or result.record is None or result.record.ledger is None:
                message = result.failure.message.strip() if result.failure else ""
                self.why_not = (message.splitlines() or ["its estimate failed"])[0]
                return None
            made.append(result)
        found = cost_of(config, made)
        self.why_not = "" if found else "nothing bounds what its estimate leaves in doubt"
        return found


def run_name(config: ExperimentConfig) -> str:
    """Name an estimate's run, with the changed settings that the experiment's own name leaves out."""
    info = trainer_info(config.trainer)
    defaults = fields(info.options) if info.options else {}
    own = {one.setting: config.options[one.setting] for one in info.alternatives}
    told = {
        "checkpointed": config.activation_checkpointing,
        config.precision: config.precision != "fp32",
        config.loop: config.loop != DOCUMENTED,
        **{str(value): value != defaults[name].default for name, value in own.items()},
        f"acc{config.accumulation_steps}": config.accumulation_steps > 1,
    }
    return "_".join([config.run_name, *(text for text, is_told in told.items() if is_told)])


def experiment_to_advise(
    asked: AdviceConfig, values: Mapping[str, object], launcher: Launcher
) -> tuple[ExperimentConfig, list[Change], dict[str, str]]:
    """Return the resolved experiment, its single changes, and why others are left out. Raises ConfigError."""
    trainers = parse_trainers(asked.trainers)
    config = parse_experiment({**COMMANDS["advise"].defaults, **values, "savings": False}, EstimatingConfig)
    refuse_missing_module(config.workload, launcher=launcher)
    config = config.resolve(cuda_available=True)
    return config, *possible_changes(config, trainers)
