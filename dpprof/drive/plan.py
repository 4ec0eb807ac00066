"""Plans a training: finds what each trainer's step needs on a device, and compares ways to train."""

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from dpprof.config.changes import possible_changes
from dpprof.config.entry_points import ACCUMULATING, AdviceConfig, PlanConfig
from dpprof.config.estimating import EstimatingConfig
from dpprof.config.experiment import ExperimentConfig
from dpprof.config.flat import parse_for_trainers, parse_trainers, with_own_options
from dpprof.config.training import TrainingConfig
from dpprof.drive.advise import Advise, WriteAdvice
from dpprof.drive.campaign import Planned, RunOne, Stage
from dpprof.drive.fit import Searches
from dpprof.drive.launch.launcher import Launcher
from dpprof.drive.measured_runs import tells
from dpprof.drive.sweep import shared_settings
from dpprof.drive.workload_check import refuse_missing_module
from dpprof.errors import AccountingError, ConfigError, ExperimentsFailed, refuse
from dpprof.findings.advice.answer import answer
from dpprof.findings.fit import Answer
from dpprof.findings.plan.answer import reason
from dpprof.findings.plan.data import (
    BatchNoise,
    Fitted,
    PlanData,
    largest_useful_batch,
    peak_with_more_batches,
)
from dpprof.findings.plan.timing import MeasuredSteps, Reached
from dpprof.privacy.accounting import noise_by_rdp, noise_for
from dpprof.privacy.guarantee import Guarantee, PrivateSteps, default_delta
from dpprof.record.figures.capacity import capacity_bytes, needed_bytes
from dpprof.record.figures.cost import StepCost
from dpprof.record.figures.results import FINISHED, Result, describe
from dpprof.record.figures.step import LogicalStep
from dpprof.tracking.tracker import Summary
from dpprof.vocabulary.parallel import DDP, NONE
from dpprof.vocabulary.precision import may_be_alike
from dpprof.vocabulary.settings import fields, parse
from dpprof.vocabulary.trainers import STANDARD, TRAINERS, short_name


@dataclass
class Plan(Searches):
    """Searches for the largest batch of each trainer, and what follows for each logical batch.

    `noises` meet the privacy budget, one per logical batch. `measured` are finished runs on the device, by
    name, with step times. `earlier` are guarantees of plans made before. `write` and `write_advice` return
    text and files.
    """

    kind = "plan"
    # Saves each trainer an estimate that shows that the next batch does not fit.
    is_proven = False

    asked: PlanConfig
    left_out: Mapping[str, str]
    write: Callable[[PlanData, Path], tuple[str, list[Path]]]
    write_advice: WriteAdvice
    noises: Sequence[BatchNoise] = ()
    measured: Mapping[str, Result] = field(default_factory=dict)
    earlier: Collection[Guarantee] = ()
    made: PlanData | None = field(default=None, init=False)
    # Made only if nothing fits.
    advice: Advise | None = field(default=None, init=False)

    @property
    def params(self) -> dict[str, object]:
        """Settings of all experiments and of the plan."""
        return shared_settings(self.experiments) | vars(self.asked)

    @property
    def most(self) -> int:
        """Largest physical batch that is tried: no device has more samples in any step of any row."""
        return largest_useful_batch(self.asked)

    def stages(self) -> Iterator[Stage]:
        """The searches, then an estimate of the row to begin with; if nothing fits, those of an advice."""
        yield Stage([partial(self.search, name) for name in self.experiments], self.workers)
        self.made = self._weighed()
        first = self.made.recommended or self.made.next_best
        if first is not None:
            yield Stage([partial(self._estimated, self.made.prediction(first)[0])], 1)
        if not self.made.options:
            self.advice = self._advisor()
            if self.advice is not None:
                yield from self.advice.stages()

    def _advisor(self) -> Advise | None:
        """Advise, as part of the plan, on the smallest step that was estimated; None without any."""
        sizes = {
            needed_bytes(one.config, one.record.ledger): one.config
            for name in self.experiments
            for one in self.evaluated[name]
            if one.record is not None and one.record.ledger is not None
        }
        if not sizes:
            return None
        config = dataclasses.replace(sizes[min(sizes)], batch_size=1, accumulation_steps=ACCUMULATING)
        asked = AdviceConfig(headroom=self.asked.headroom)
        found = possible_changes(config, [one.trainer for one in self.experiments.values()])
        here = self.name, self.drive, self.launcher
        advice = Advise(*here, config, asked, *found, self.write_advice, self.workers)
        advice.stop = self.stop
        return advice

    def _weighed(self) -> PlanData:
        """Compare the ways to train. Without a list of batches, double them while the largest is the best."""
        fitted = [self._fitted(name, self.answers_by_name[name]) for name in self.experiments]
        weights_dtype = next((one.weights_dtype for one in fitted if one.weights_dtype), "")
        reached = Reached.of(self.measured, fitted[0].config, weights_dtype)
        if reached is not None:
            fitted = [one.corrected(reached) for one in fitted]
        while True:
            made = PlanData(self.name, self.asked, self.noises, fitted, self.left_out, reached)
            batches = [noise.logical_batch for noise in self.noises]
            larger = self.asked.next_batch(batches) if made.is_largest else None
            if larger is None:
                return made
            self.noises = [*self.noises, *noises(self.asked, [larger], self.earlier)]

    def _estimated(self, config: ExperimentConfig, run_one: RunOne) -> list[Result]:
        """Estimate the row to begin with, with at most two of its physical batches."""
        assert self.made is not None, "weighed before"
        # The noise does not matter for an estimate: with that of the searches, their estimates are reused.
        noise_multiplier = next(iter(self.experiments.values())).noise_multiplier
        num_physical = config.accumulation_steps
        few = min(num_physical, ACCUMULATING)
        config = dataclasses.replace(config, accumulation_steps=few, noise_multiplier=noise_multiplier)
        # In the searches, the name without a suffix stands for ACCUMULATING physical batches.
        suffix = "" if few == ACCUMULATING else f"_acc{few}"
        result = run_one(Planned(1, 1, config.run_name + suffix, config))
        if result.status == FINISHED and result.record is not None:
            peak = peak_with_more_batches(result.record, few, num_physical)
            folder = str(result.folder.path)
            self.made = dataclasses.replace(self.made, peak_bytes=peak, estimate=folder, step=result.step)
        return [result]

    def summarize(self) -> Summary:
        """Write the plan, and the advice if there is one, unless it was stopped."""
        if self.interrupted:
            return Summary("stopped by the user")
        assert self.made is not None, "weighed before"
        advised: Sequence[Path] = ()
        if self.advice is not None:
            written = self.advice.summarize()
            if self.advice.made is not None:
                advised = written.files
                self.made = dataclasses.replace(self.made, advice=answer(self.advice.made))
        text, files = self.write(self.made, self.folder.path)
        return Summary(text, [*files, *advised])

    def _fitted(self, name: str, answer: Answer) -> Fitted:
        estimates = [result for result in self.evaluated[name] if result.status == FINISHED]
        if answer.failure is not None or not estimates:
            why = "no estimate" if answer.failure is None else describe(answer.failure)
            return Fitted(answer.config, 0, failure=why)
        config = self.experiments[name]
        telling = {
            name: result
            for name, result in self.measured.items()
            if result.config.trainer == config.trainer and tells(result, config)
        }
        dtype = answer.weights_dtype
        alike = {name: one for name, one in telling.items() if may_be_alike(one.weights_dtype, dtype)}
        # If none fits, the smallest shows by how much.
        best = answer.best or min(estimates, key=lambda result: result.config.batch_size)
        step = None if best.estimated is None else LogicalStep.of(*best.estimated)
        folders = tuple(dict.fromkeys(str(result.folder.path) for result in estimates))
        cost = StepCost.of([one.estimated for one in estimates if one.estimated is not None])
        measured = MeasuredSteps.of(alike)
        return Fitted(
            config,
            answer.size,
            cost if measured is None else measured.cost(config, cost),
            measured,
            needed_bytes=None if step is None else step.needed,
            peak_phase=None if step is None else step.peak_phase,
            folders=folders,
            weights_dtype=dtype,
            unlike=tuple(sorted(telling.keys() - alike.keys())),
            is_at_least=answer.is_open,
        )

    def raise_if_failed(self) -> None:
        """Raise ExperimentsFailed without any answer; a trainer that has none is left out."""
        if self.made is None or not self.made.options:
            why = "nothing was estimated." if self.made is None else reason(self.made)
            if self.advice is not None and self.advice.made is not None:
                raise ExperimentsFailed(f"no plan: {why} plan.md says what would make one fit")
            raise ExperimentsFailed(f"no plan: {why} plan.md says of each trainer why")


def experiments_to_plan(
    asked: PlanConfig, values: Mapping[str, object], launcher: Launcher
) -> tuple[dict[str, ExperimentConfig], dict[str, str]]:
    """Return a resolved experiment per trainer, by name, and why others are left out. Raises ConfigError."""
    trainers = [name for name in parse_trainers(asked.trainers) if TRAINERS[name].is_private]
    if not trainers:
        raise refuse("trainers", asked.trainers, "at least one that trains with differential privacy")
    way = str(parse(fields(TrainingConfig)["parallel"], values.get("parallel", NONE)))
    if asked.num_devices > 1 and way == NONE:
        way = DDP
    shared = dict(values) | {"savings": False, "trainer": STANDARD, "batch_size": 1}
    shared |= {"parallel": way, "world_size": asked.num_devices}
    base = parse_for_trainers(shared, EstimatingConfig, trainers)
    refuse_missing_module(base.workload, launcher=launcher)
    found, left_out = {}, {}
    for name in trainers:
        if way not in TRAINERS[name].parallel:
            left_out[name] = f"it cannot share a model by {way}"
            continue
        try:
            config = with_own_options(dataclasses.replace(base, trainer=name)).resolve(cuda_available=True)
            dataclasses.replace(config, accumulation_steps=ACCUMULATING)
        except ConfigError as error:
            left_out[name] = str(error)
        else:
            found[config.run_name] = config
    if not found:
        why = "; ".join(f"{short_name(name)}: {text}" for name, text in left_out.items())
        raise ConfigError(f"trainers: none of them can be planned ({why})")
    first = next(iter(found.values()))
    if capacity_bytes(first) is None:
        given_gib = base.estimating.device_memory_gib
        raise refuse("device_memory_gib", given_gib, "a number above 0, or a GPU by name, as target=H100")
    return found, left_out


def noises(
    asked: PlanConfig, batches: Sequence[int], earlier: Collection[Guarantee] = ()
) -> list[BatchNoise]:
    """Compute the noise for each logical batch; `earlier` answers save time.

    Raises AccountingError if no accountant answers.
    """
    delta = asked.target_delta or default_delta(asked.dataset_size)
    found = []
    for batch in batches:
        rate, num_steps = batch / asked.dataset_size, asked.num_steps(batch)
        steps = PrivateSteps(rate, num_steps, delta)
        guarantee = noise_for(asked.target_epsilon, steps, earlier)
        by_rdp, why_not = None, ""
        try:
            by_rdp = noise_by_rdp(asked.target_epsilon, steps)
        except AccountingError as error:
            why_not = str(error)
        found.append(BatchNoise(batch, rate, num_steps, rate * num_steps, guarantee, by_rdp, why_not))
    return found
