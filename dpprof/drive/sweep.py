"""A grid of experiments and their comparison; one with a verdict for each trainer; a single one alone."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from dpprof.config.estimating import ESTIMATE
from dpprof.config.experiment import ExperimentConfig
from dpprof.config.flat import to_flat
from dpprof.drive.campaign import Campaign, Planned, RunOne, Stage
from dpprof.drive.counters import can_count_now
from dpprof.drive.jobs import at_a_time
from dpprof.errors import ConfigError, ExperimentsFailed, Undecided
from dpprof.findings.comparison.reports import SweepReports
from dpprof.findings.verdict.best import recommended
from dpprof.record.check import MODULE
from dpprof.record.figures.names import HEADLINE_RATIOS, PEAK, RATIOS_OF_TIMES, STEP
from dpprof.record.figures.results import FINISHED, KILLED, Result, describe, read_results
from dpprof.record.figures.verdicts import CANNOT_TELL, FAIL, PASS, SPOKEN, VERIFY
from dpprof.record.folder import RunFolder, SweepFolder
from dpprof.record.record import FailureKind, Predicted
from dpprof.tracking.tracker import Summary
from dpprof.tracking.view import View


@dataclass
class Sweep(Campaign):
    """Resolved experiments by run name, `workers` at a time (0: as many as suit the launcher).

    `kept` are earlier results that need not be repeated; `damaged` has a sentence per unreadable file.
    `foreseen` are estimates of a larger model, only for the verdict. `planned` are the names of all
    experiments, also of those that left nothing. `write_reports` compares the results and writes `reports`.
    """

    experiments: Mapping[str, ExperimentConfig]
    kind: str = "sweep"
    workers: int = 0
    kept: Mapping[str, Result] = field(default_factory=dict)
    foreseen: Mapping[str, ExperimentConfig] = field(default_factory=dict)
    planned: Sequence[str] = ()
    damaged: Sequence[str] = ()
    write_reports: Callable[[SweepFolder, Sequence[Result]], SweepReports] = field(kw_only=True)
    reports: SweepReports | None = field(default=None, init=False)

    can_be_resumed = True

    @property
    def names(self) -> list[str]:
        """Names of all its experiments."""
        return list(dict.fromkeys([*self.planned, *self.experiments]))

    @property
    def missing(self) -> list[str]:
        """Names of the experiments that did not end."""
        ended = {result.name for result in self.results if not result.was_cut_off}
        return [name for name in self.names if name not in ended]

    @property
    def status(self) -> str:
        """MLflow status of the parent run: also KILLED if experiments are missing."""
        return KILLED if self.missing else super().status

    def experiment_to_check(self) -> ExperimentConfig | None:
        """The first experiment that is still to be run."""
        return next((config for name, config in self.experiments.items() if name not in self.kept), None)

    @property
    def params(self) -> dict[str, object]:
        """Settings of all experiments, and their number."""
        return shared_settings(self.experiments) | {"num_experiments": len(self.names)}

    def stages(self) -> Iterator[Stage]:
        """Every experiment, in order; then the estimates of a larger model."""
        foreseen = self.folder.foreseen
        earlier, _ = read_results((run.name, run) for run in foreseen.runs())
        done = {result.name for result in earlier if result.is_complete}
        ahead = [(name, one) for name, one in self.foreseen.items() if name not in done]
        every, num = [*self.experiments.items(), *ahead], len(self.experiments)
        planned = [Planned(i, len(every), *one) for i, one in enumerate(every, start=1)]
        measured, estimates = planned[:num], [replace(one, home=foreseen) for one in planned[num:]]
        last = max((one.index for one in measured if one.name not in self.kept), default=0)
        measured = [replace(one, another_follows=one.index < last) for one in measured]
        yield Stage([partial(self._run, one) for one in measured], self._at_a_time(measured, self.workers))
        if estimates:
            yield Stage([partial(self._foresee, one) for one in estimates], self._at_a_time(estimates))

    def _at_a_time(self, planned: Sequence[Planned], workers: int = 0) -> int:
        """Return how many run in parallel: any experiment tells, as all have the same device and ranks."""
        return at_a_time(self.launcher, planned[0].config, workers) if planned else 1

    def _run(self, planned: Planned, run_one: RunOne) -> list[Result]:
        return [self.kept[planned.name] if planned.name in self.kept else run_one(planned)]

    def _foresee(self, planned: Planned, run_one: RunOne) -> list[Result]:
        """Keep no result: the verdict reads it from its folder."""
        run_one(planned)
        return []

    def summarize(self) -> Summary:
        """Write the comparison of all results, kept ones included even after a stop."""
        seen = {result.name for result in self.results}
        self.results += [result for name, result in self.kept.items() if name not in seen]
        if not self.results:
            return Summary("stopped before anything was measured")
        self.reports = reports = self.write_reports(self.folder, self.results)
        comparison = reports.data.comparison
        ratios: dict[str, dict[str, float]] = {}
        for cell in comparison.cells:
            for run in cell.finished:
                shown = set(HEADLINE_RATIOS)
                if comparison.is_disturbed_at(cell):  # MLflow has no mark to show beside a figure
                    shown -= RATIOS_OF_TIMES
                figures = comparison.ratios(cell, run)
                ratios[run.name] = {n: figures[n] for n in HEADLINE_RATIOS if n in figures.keys() & shown}
        best = recommended(comparison, reports.data.findings)
        is_estimate = next(iter(self.experiments.values())).is_estimate
        prefix = f"{ESTIMATE}/" if is_estimate else ""
        return Summary(
            reports.description,
            reports.files,
            reports.table,
            figures={prefix + name: value for name, value in best.figures.items()} if best else {},
            ratios=ratios,
            tags={"dpprof.best_trainer": best.trainer, "dpprof.best_at": best.place} if best else {},
            view=View(
                len(self.results),
                differing_settings(self.experiments),
                {name for cell in comparison.cells for name in (*cell.figures, *comparison.ratios(cell))},
                is_estimate,
            ),
        )

    @property
    def stopped(self) -> str:
        """Message with the number of finished experiments and how to go on."""
        done = sum(result.status == FINISHED for result in self.results)
        how = f". To go on, give the same options with sweep_name={self.name} resume=true"
        return (
            f"stopped; {done} of {len(self.experiments)} experiments are finished and kept in "
            f"{self.folder.path}" + (how if self.can_be_resumed else "")
        )

    def raise_if_failed(self) -> None:
        """Raise the error of a failure, except out of memory, or of the gradient check."""
        failed = failed_results(self.results)
        if failed:
            names = ", ".join(result.name for result in failed)
            raise ExperimentsFailed(f"{len(failed)} of {len(self.experiments)} experiments failed: {names}")
        raise_for_checks(self.results)


def shared_settings(experiments: Mapping[str, ExperimentConfig]) -> dict[str, object]:
    """Return the settings common to all experiments, with the number of experiments."""
    configs = [to_flat(config) for config in experiments.values()]
    shared = {
        name: value
        for name, value in (configs[0] if configs else {}).items()
        if all(name in config and config[name] == value for config in configs)
    }
    return shared | {"num_experiments": len(configs)}


def differing_settings(experiments: Mapping[str, ExperimentConfig]) -> list[str]:
    """Return the names of the settings that differ between experiments, besides the trainer."""
    shared = {"trainer": None} | shared_settings(experiments)
    names = dict.fromkeys(name for config in experiments.values() for name in to_flat(config))
    return [name for name in names if name not in shared]


def reusable_results(sweep: Sweep) -> dict[str, Result]:
    """Return the complete results that a resumed sweep keeps, by run name.

    Unreadable ones (named in `sweep.damaged`) and those without counters that are available now are run
    again. Raises ConfigError if a result was measured with other settings.
    """
    folders = [(name, sweep.folder.run(name)) for name in sweep.experiments]
    results, damaged = read_results((name, run) for name, run in folders if run.record.exists())
    foreseen = sweep.folder.foreseen.runs()
    damaged += read_results((run.name, run) for run in foreseen if run.name in sweep.foreseen)[1]
    state = sweep.folder.set_aside_damaged_state()
    sweep.damaged = [*([state] if state else []), *(f"done again: {text}" for text in damaged)]
    kept = {}
    for result in results:
        name, folder, config = result.name, result.folder, sweep.experiments[result.name]
        if not result.is_complete or can_count_now(result.config, result.record, sweep.launcher.machine):
            continue
        earlier = to_flat(result.config)
        for setting, value in to_flat(config).items():
            before = earlier.get(setting)
            if before != value:
                raise ConfigError(
                    f"resume: {folder.path} was measured with {setting}={before}, now {setting}={value}; "
                    "give the earlier value or a new sweep_name"
                )
        kept[name] = result
    return kept


@dataclass
class SingleRun(Campaign):
    """Resolved experiment in a folder of the campaign's name, with a plan's prediction if it had one."""

    config: ExperimentConfig
    predicted: Predicted | None = None
    # Everything else shows when the workload is built, before anything is timed.
    checked = MODULE

    def experiment_to_check(self) -> ExperimentConfig:
        """The experiment."""
        return self.config

    @property
    def run_folder(self) -> RunFolder:
        """The experiment's folder."""
        return self.folder.run(self.config.run_name)

    def stages(self) -> Iterator[Stage]:
        """The experiment."""
        planned = Planned(1, 1, self.config.run_name, self.config)
        yield Stage([partial(self._measured, planned)], at_a_time=1)

    def _measured(self, planned: Planned, run_one: RunOne) -> list[Result]:
        result = run_one(planned)
        if self.predicted is None:
            return [result]
        result.folder.write_predicted(self.predicted)
        return [replace(result, predicted=self.predicted)]

    @property
    def to_log(self) -> Path:
        """The experiment's folder."""
        return self.run_folder.path

    def raise_if_failed(self) -> None:
        """Raise the error of a failure, except out of memory, or of the gradient check."""
        if failed_results(self.results):
            folder = self.run_folder
            seen_at = folder.log if folder.log.exists() else folder.path
            raise ExperimentsFailed(f"{self.config.run_name} failed; see {seen_at}")
        raise_for_checks(self.results)


@dataclass
class TrainerCheck(Sweep):
    """One small experiment per trainer, to be verified; `kind` is the command, test or verify."""

    kind: str = "test"
    can_be_resumed = False

    @property
    def verdicts(self) -> dict[str, tuple[bool, str]]:
        """For each trainer, whether it passed, with the figures or the reason."""
        return {result.config.trainer: (_word(result) == PASS, describe(result)) for result in self.results}

    def has_failed(self) -> bool:
        """True if any trainer did not pass: these models are too small to run out of memory."""
        return any(_word(result) != PASS for result in self.results)

    def summarize(self) -> Summary:
        """Add to the comparison whether each trainer passed, its step latency and its peak memory."""
        summary = super().summarize()
        if self.interrupted:
            return summary
        figures = dict(summary.figures)
        for result in self.results:
            metrics = result.metrics if result.figures else {}
            found: dict[str, float | None] = {"passed": float(_word(result) == PASS)}
            found["step_ms_median"], found["peak_allocated_mib"] = metrics.get(STEP), metrics.get(PEAK)
            own = f"{self.kind}/{result.config.trainer_title}"
            figures |= {f"{own}/{name}": value for name, value in found.items() if value is not None}
        return replace(summary, figures=figures)

    def raise_if_failed(self) -> None:
        """Raise an error that names the trainers that failed, else those that could not be verified."""
        for word, error, said in (
            (FAIL, ExperimentsFailed, "failed"),
            (CANNOT_TELL, Undecided, "could not be verified"),
        ):
            trainers = [result.config.trainer for result in self.results if _word(result) == word]
            if trainers:
                counted = f"{len(trainers)} of {len(self.results)} trainers"
                raise error(f"{counted} {said}: {', '.join(trainers)}")


def _word(result: Result) -> str:
    check, record = result.verdicts.get(VERIFY), result.record
    return FAIL if check is None or record is None or record.failed_passes else check.word


def failed_results(results: Iterable[Result]) -> list[Result]:
    """Return the failed results, not those that the user stopped, or out of memory, which is a finding."""
    no_failure = (FailureKind.OOM, FailureKind.INTERRUPTED)
    return [one for one in results if one.failure is not None and one.failure.kind not in no_failure]


def raise_for_checks(results: Sequence[Result]) -> None:
    """Raise ExperimentsFailed (`fail`) or Undecided (`cannot tell`) if a check or `verify` says so."""
    for verdict in (FAIL, CANNOT_TELL):
        said, kind = ("failed", ExperimentsFailed) if verdict == FAIL else ("could not tell", Undecided)
        judged = [(check, r.name) for r in results for check, v in r.verdicts.items() if v.word == verdict]
        if judged:
            first = judged[0][0]
            names = [name for check, name in judged if check == first]
            counted = f"{len(names)} of {len(results)} experiments"
            raise kind(f"{SPOKEN[first]} {said} in {counted}: {', '.join(names)}")
