"""Plans a training: finds what each trainer's step needs on a device, and weighs the ways to train."""

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from dpprof.config.experiment import ExperimentConfig
from dpprof.config.fit import ACCUMULATING
from dpprof.config.plan import PlanConfig
from dpprof.drive.advise import Advise
from dpprof.drive.campaign import Planned, RunOne, Stage
from dpprof.drive.earlier import Earlier
from dpprof.drive.fit import Fit
from dpprof.drive.logbook import Summary
from dpprof.drive.measured_runs import tells
from dpprof.drive.plan_advice import advisor
from dpprof.drive.sweep import shared_settings
from dpprof.errors import ExperimentsFailed, Interrupted
from dpprof.figures.capacity import device_of
from dpprof.figures.plan.options import Fitted, Noise
from dpprof.figures.plan.prediction import peak_with_more_batches
from dpprof.figures.plan.reached import Reached
from dpprof.figures.plan.step_cost import StepCost
from dpprof.figures.plan.timing import MeasuredSteps
from dpprof.figures.results import FINISHED, Result, describe
from dpprof.record.files import write_text
from dpprof.reports.fit import Answer
from dpprof.reports.plan import markdown, page
from dpprof.reports.plan.data import PlanData, compute
from dpprof.tracking.tracker import Tracker
from dpprof.vocabulary.units import MIB

# What its folder and its parent run say that they are.
PLAN = "plan"


@dataclass
class Plan(Fit):
    """A search for the largest batch with each trainer, and what follows for each logical batch.

    `asked` is what the user asks; `noises` are what the budget asks for, by logical batch. `measured` are
    finished runs on the device, by name, that times may come from. Estimates that an earlier search left are
    not made again.
    """

    asked: PlanConfig = field(default_factory=PlanConfig)
    noises: Sequence[Noise] = ()
    measured: Mapping[str, Result] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    # An estimate more for each trainer would show that.
    is_proven: bool = field(default=False, init=False)
    made: PlanData | None = field(default=None, init=False)
    # Asked where nothing fits.
    advice: Advise | None = field(default=None, init=False)

    @property
    def tags(self) -> dict[str, str]:
        """Every run bears the plan's name."""
        return {"dpprof.plan": self.name}

    def open_parent(self, tracker: Tracker) -> str:
        """Open the parent run."""
        params = shared_settings(self.experiments) | vars(self.asked)
        return tracker.start_parent(self.name, PLAN, params, self.folder, earlier=None)

    def stages(self) -> Iterator[Stage]:
        """The searches."""
        assert self.parent is not None, "opened before"
        self.folder.write_state(PLAN, self.parent, ())
        self._earlier = Earlier(self.folder)
        self._estimates: dict[str, list[Result]] = {name: [] for name in self.experiments}
        yield Stage([partial(self._searched, name) for name in self.experiments], self.workers)
        self.made = self._weighed()
        if self.made.prediction is not None:
            yield Stage([partial(self._estimated, self.made.prediction.config)], 1)
        if not self.made.options:
            made = [one for each in self._estimates.values() for one in each]
            trainers = [config.trainer for config in self.experiments.values()]
            self.advice = advisor(self, made, self.asked.headroom, trainers, self.workers)
            if self.advice is not None:
                yield from self.advice.estimating()

    def _searched(self, name: str, run_one: RunOne) -> list[Result]:
        """Search for a trainer. Keeps what was not there before."""

        def estimated(planned: Planned) -> Result:
            result = self._earlier.find(planned) or run_one(planned)
            self._estimates[name].append(result)
            return result

        kept = self._search(name, estimated)
        return [result for result in kept if result.folder.path.parent == self.folder.path]

    def _weighed(self) -> PlanData:
        """The ways to train."""
        fitted = [self._fitted(name, self.answers_by_name[name]) for name in self.experiments]
        reached = Reached(*self.asked.efficiencies) if self.asked.efficiencies else None
        config = fitted[0].config
        device = device_of(config)
        if reached is None and device is not None:
            reached = Reached.of(self.measured, device, config)
        return compute(self.name, self.asked, self.noises, fitted, self.left_out, reached)

    def _estimated(self, config: ExperimentConfig, run_one: RunOne) -> list[Result]:
        """Estimate the recommended row, with two of its physical batches at most."""
        assert self.made is not None, "weighed before"
        # The noise does not matter: with that of the searches, what they estimated is found.
        noise_multiplier = next(iter(self.experiments.values())).noise_multiplier
        num_physical = config.accumulation_steps
        few = min(num_physical, ACCUMULATING)
        config = dataclasses.replace(config, accumulation_steps=few, noise_multiplier=noise_multiplier)
        # The searches' name stands for their number of physical batches.
        suffix = "" if few == ACCUMULATING else f"_acc{few}"
        planned = Planned(1, 1, config.run_name + suffix, config)
        found = self._earlier.find(planned)
        result = found or run_one(planned)
        if result.status == FINISHED and result.record is not None:
            peak = peak_with_more_batches(result.record, few, num_physical)
            self.made = dataclasses.replace(self.made, peak_bytes=peak, estimate=str(result.folder.path))
        return [] if found else [result]

    def summarize(self) -> Summary:
        """Write the plan as a page, as Markdown and as data, unless it was stopped."""
        if self.interrupted:
            return Summary("stopped by the user")
        assert self.made is not None, "weighed before"
        advised = self._advised()
        self.text = markdown.render(self.made)
        files = [self.folder.path / name for name in ("plan.html", "plan.md", "plan.json")]
        write_text(files[0], page.render(self.made))
        write_text(files[1], self.text)
        write_text(files[2], json.dumps(self.made.to_data(), indent=1))
        return Summary(self.text, [*files, *advised])

    def _advised(self) -> Sequence[Path]:
        """Write the advice, if there is one, and tell it in the plan."""
        if self.advice is None or self.made is None:
            return ()
        written = self.advice.summarize()
        if self.advice.made is None:
            return ()
        self.made = dataclasses.replace(self.made, advice=self.advice.made.answer)
        return written.files

    def _fitted(self, name: str, answer: Answer) -> Fitted:
        estimates = [result for result in self._estimates[name] if result.status == FINISHED]
        if answer.failure is not None or not estimates:
            why = "no estimate" if answer.failure is None else describe(answer.failure)
            return Fitted(answer.config, 0, failure=why)
        config = self.experiments[name]
        alike = {
            name: result
            for name, result in self.measured.items()
            if result.config.trainer == config.trainer and tells(result, config)
        }
        # If none fits, the smallest shows by how much.
        best = answer.best or min(estimates, key=lambda result: result.config.batch_size)
        folders = tuple(dict.fromkeys(str(result.folder.path) for result in estimates))
        return Fitted(
            config,
            answer.size,
            StepCost.of(estimates),
            MeasuredSteps.of(alike),
            needed_bytes=_needed(best),
            peak_phase=_peak_phase(best),
            folders=folders,
        )

    def has_failed(self) -> bool:
        """Nothing can be planned. A trainer without an answer is left out."""
        return self.made is None or not self.made.options

    def raise_for_end(self) -> None:
        """Stopped, or without any answer."""
        if self.interrupted:
            raise Interrupted(f"stopped; the estimates so far are kept in {self.folder.path}")
        if self.made is None or not self.made.options:
            why = "nothing was estimated" if self.made is None else self.made.reason.rstrip(".")
            why = why[0].lower() + why[1:]
            if self.advice is not None and self.advice.made is not None:
                raise ExperimentsFailed(f"{why}: plan.md says what would make one fit")
            raise ExperimentsFailed(f"{why}: plan.md says of each trainer why")


def _needed(result: Result) -> int | None:
    """Bytes, with what is in doubt."""
    estimate = result.figures.estimate if result.figures else None
    return None if estimate is None else round((estimate.needed_mib + (estimate.doubt_mib or 0)) * MIB)


def _peak_phase(result: Result) -> str | None:
    ledger = result.record.ledger if result.record else None
    return None if ledger is None else ledger.peak_phase
