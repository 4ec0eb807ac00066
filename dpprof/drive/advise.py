"""Advises on an experiment that does not fit or is slow: estimates it, and what changes of it would cost."""

import dataclasses
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from dpprof.config.advice import AdviceConfig
from dpprof.config.changes import BATCH, Change, changed
from dpprof.config.experiment import ExperimentConfig
from dpprof.drive.campaign import Campaign, Planned, RunOne, Stage
from dpprof.drive.earlier import Earlier
from dpprof.drive.logbook import Summary
from dpprof.drive.stop import Stopped
from dpprof.drive.sweep import shared_settings
from dpprof.errors import ConfigError, ExperimentsFailed, Interrupted
from dpprof.figures.advice.arithmetic import ByArithmetic, by_arithmetic
from dpprof.figures.advice.cost import Cost, batches_to_estimate
from dpprof.figures.advice.weighing import Advice, Weighed, smaller_batches, together, with_smaller_batch
from dpprof.figures.capacity import capacity_bytes
from dpprof.figures.results import FINISHED, KILLED, Result
from dpprof.record.files import write_text
from dpprof.record.ledger import LedgerResult
from dpprof.reports.advice import markdown, page
from dpprof.reports.advice.data import AdviceData
from dpprof.tracking.tracker import Tracker
from dpprof.vocabulary.clipping import BLOCKED, MIXED
from dpprof.vocabulary.loops import DOCUMENTED

# What its folder and its parent run say that they are.
ADVICE = "advice"
_NO_BOUND = "nothing bounds what its estimate leaves in doubt"
# Tried together with a trainer that takes norms so, where the experiment's own does not.
_BLOCKED_NORMS = Change("blocked norms", "norm", {"norm": BLOCKED})


@dataclass
class Advise(Campaign):
    """A resolved experiment, and single changes of it. `left_out` says why others cannot be made.

    Estimates that an earlier campaign left are not made again.
    """

    experiment: ExperimentConfig
    asked: AdviceConfig
    changes: Sequence[Change]
    left_out: dict[str, str]
    workers: int = 1
    given: Cost | None = field(default=None, init=False)
    why_not: str = field(default="", init=False)
    alone: dict[str, Weighed] = field(default_factory=dict, init=False)
    made: AdviceData | None = field(default=None, init=False)
    text: str = field(default="", init=False)
    _together: Weighed | None = field(default=None, init=False)
    _ledger: LedgerResult | None = field(default=None, init=False)
    _arithmetic: Sequence[ByArithmetic] = field(default=(), init=False)

    @property
    def tags(self) -> dict[str, str]:
        """Every run bears the advice's name."""
        return {f"dpprof.{ADVICE}": self.name}

    @property
    def has_several_models(self) -> bool:
        """Adapters make another model of it."""
        return True

    @property
    def limit(self) -> int | None:
        """Bytes that a step may need."""
        capacity = capacity_bytes(self.experiment)
        return None if capacity is None else round(capacity * self.asked.usable)

    @property
    def advice(self) -> Advice:
        """What came of it so far, once the experiment itself is estimated."""
        assert self.given is not None, "estimated before"
        alone = [self.alone[name] for name in (*self._names, BATCH) if name in self.alone]
        return Advice(self.given, self.limit, alone, self._together)

    @property
    def _names(self) -> list[str]:
        return [change.name for change in self.changes]

    def experiment_to_check(self) -> ExperimentConfig:
        """The experiment as it is given."""
        return self.experiment

    def open_parent(self, tracker: Tracker) -> str:
        """Open the parent run."""
        params = shared_settings({self.experiment.run_name: self.experiment}) | vars(self.asked)
        return tracker.start_parent(self.name, ADVICE, params, self.folder, earlier=None)

    def stages(self) -> Iterator[Stage]:
        """The experiment, every change alone, and changes together if none makes it fit."""
        assert self.parent is not None, "opened before"
        self.folder.write_state(ADVICE, self.parent, ())
        yield from self.estimating()

    def estimating(self) -> Iterator[Stage]:
        """As `stages`, of another campaign that wants advice."""
        yield Stage([self._estimate_given], 1)
        if self.given is None:
            return
        tasks = [partial(self._estimate_alone, change) for change in self.changes]
        yield Stage([*tasks, self._estimate_smaller_batches], self.workers)
        if self.advice.worth_a_smaller_batch is not None:
            yield Stage([self._estimate_with_smaller_batch], 1)
        elif not self.advice.fits and self.advice.best is None:
            yield Stage([self._estimate_together], 1)

    def _estimate_given(self, run_one: RunOne) -> list[Result]:
        with_cost = _Estimates(self, run_one, 1)
        self.given = with_cost.cost(self.experiment)
        self.why_not = with_cost.why_not
        last = with_cost.last
        if self.given is not None and last is not None and last.record is not None:
            self._ledger, timeline = last.record.ledger, last.folder.read_timeline()
            if self._ledger is not None and timeline is not None:
                self._arithmetic = by_arithmetic(self.experiment, self._ledger, timeline)
        return with_cost.kept

    def _estimate_alone(self, change: Change, run_one: RunOne) -> list[Result]:
        estimates = _Estimates(self, run_one, 2 + self._names.index(change.name))
        cost = estimates.cost(changed(self.experiment, change.settings))
        if cost is None:
            self.left_out[change.name] = estimates.why_not
        else:
            self.alone[change.name] = Weighed((change,), cost)
        return estimates.kept

    def _estimate_smaller_batches(self, run_one: RunOne) -> list[Result]:
        """Halves of the batch until one fits; the first one if the batch fits already."""
        estimates = _Estimates(self, run_one, 2 + len(self.changes))
        limit = None if self.advice.fits else self.limit
        try:
            found = smaller_batches(self.experiment, estimates.cost, limit)
        except ConfigError as error:
            self.left_out[f"smaller {BATCH}"] = str(error)
            return estimates.kept
        if found is None:
            self.left_out[f"smaller {BATCH}"] = estimates.why_not
        else:
            self.alone[BATCH] = found
        return estimates.kept

    def _estimate_together(self, run_one: RunOne) -> list[Result]:
        estimates = _Estimates(self, run_one, 2 + len(self.changes))
        assert self.given is not None, "estimated before"
        more = [] if "norm" in self.experiment.options else [_BLOCKED_NORMS]
        changes = [*self.advice.to_combine, *more]
        self._together = together(self.experiment, self.given, changes, estimates.cost, self.limit)
        return estimates.kept

    def _estimate_with_smaller_batch(self, run_one: RunOne) -> list[Result]:
        """Keeps what fits so if that takes less time than the smaller batch alone."""
        estimates = _Estimates(self, run_one, 2 + len(self.changes))
        advice = self.advice
        faster, best = advice.worth_a_smaller_batch, advice.best
        assert faster is not None, "looked for before"
        assert best is not None, "looked for before"
        found = Weighed(
            *with_smaller_batch(faster.changes, self.experiment, faster.cost, estimates.cost, self.limit)
        )
        if advice.holds(found.cost) and found.cost.effort < best.cost.effort:
            self._together = found
        return estimates.kept

    def has_failed(self) -> bool:
        """Without an estimate of the experiment there is no advice. A change that fails is left out."""
        return self.given is None

    def summarize(self) -> Summary:
        """Write the advice as a page, as Markdown and as data, unless it was stopped."""
        if self.interrupted:
            return Summary("stopped by the user")
        if self.given is None:
            return Summary(f"no advice: {self.why_not}")
        self.made = AdviceData(
            self.name, self.experiment, self.asked, self.advice, self._arithmetic, self.left_out, self._ledger
        )
        self.text = markdown.render(self.made)
        files = [self.folder.path / f"{ADVICE}.{ending}" for ending in ("html", "md", "json")]
        write_text(files[0], page.render(self.made))
        write_text(files[1], self.text)
        write_text(files[2], json.dumps(self.made.to_data(), indent=1))
        return Summary(self.text, files)

    def raise_for_end(self) -> None:
        """Stopped, or without an estimate of the experiment."""
        if self.interrupted:
            raise Interrupted(f"stopped; the estimates so far are kept in {self.folder.path}")
        if self.given is None:
            raise ExperimentsFailed(f"the experiment could not be estimated: {self.why_not}")


class _Estimates:
    """Makes the estimates of one task. `kept` are those that were not there before, `why_not` says why the
    last experiment has no cost.
    """

    def __init__(self, campaign: Advise, run_one: RunOne, index: int) -> None:
        self.kept: list[Result] = []
        self.last: Result | None = None
        self.why_not = ""
        self._campaign = campaign
        self._run_one = run_one
        self._index = index
        self._earlier = Earlier(campaign.folder)

    def cost(self, config: ExperimentConfig) -> Cost | None:
        """What a logical step costs. Raises Stopped if the user stopped everything."""
        made = []
        for steps in batches_to_estimate(config.accumulation_steps):
            result = self._estimated(dataclasses.replace(config, accumulation_steps=steps))
            if result.status == KILLED:
                raise Stopped
            if result.status != FINISHED or result.record is None or result.record.ledger is None:
                message = result.failure.message.strip() if result.failure else ""
                self.why_not = (message.splitlines() or ["its estimate failed"])[0]
                return None
            made.append(result)
        self.last = made[-1]
        found = Cost.of(config, made)
        self.why_not = "" if found else _NO_BOUND
        return found

    def _estimated(self, config: ExperimentConfig) -> Result:
        total = 2 + len(self._campaign.changes)
        name = run_name(config)
        planned = Planned(self._index, total, name, config)
        found = self._earlier.find(planned)
        if found is None:
            found = self._run_one(planned)
            self.kept.append(found)
        return found


def run_name(config: ExperimentConfig) -> str:
    """The name of an estimate's run: what an experiment's own name leaves out follows, if it was changed."""
    norm = str(config.options.get("norm", MIXED))
    told = {
        "checkpointed": config.activation_checkpointing,
        config.precision: config.precision != "fp32",
        config.loop: config.loop != DOCUMENTED,
        norm: norm != MIXED,
        f"acc{config.accumulation_steps}": config.accumulation_steps > 1,
    }
    return "_".join([config.run_name, *(text for text, is_told in told.items() if is_told)])
