"""A grid of experiments, measured or estimated, each a child of one MLflow run, and their comparison."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from dpprof.config.estimating import ESTIMATE
from dpprof.config.experiment import ExperimentConfig
from dpprof.config.flat import to_flat
from dpprof.drive.campaign import Campaign, Planned, RunOne, Stage
from dpprof.drive.counters import can_count_now
from dpprof.drive.jobs import at_a_time
from dpprof.drive.logbook import Summary
from dpprof.drive.outcomes import failed_results, raise_for_checks, results_judged
from dpprof.errors import ConfigError, DpprofError, ExperimentsFailed, Interrupted
from dpprof.figures.gradient_verdict import FAIL
from dpprof.figures.names import HEADLINE_RATIOS, RATIOS_OF_TIMES
from dpprof.figures.results import FINISHED, KILLED, Result, read_result, read_results
from dpprof.record.folder import RunFolder
from dpprof.reports.comparison import export
from dpprof.reports.comparison.data import ComparisonData
from dpprof.reports.comparison.markdown import description
from dpprof.reports.comparison.recommended import recommended
from dpprof.reports.sweep_reports import write_sweep_reports
from dpprof.tracking.tracker import Tracker
from dpprof.tracking.view import View


@dataclass
class Sweep(Campaign):
    """Resolved experiments by run name; `kept` are the results of those that need not be done again, and
    `damaged` has a sentence for each file that cannot be read.

    `foreseen` are estimates of a larger model, for the verdict alone: no charts, no runs in MLflow. `planned`
    are the names of all experiments, where some are not given since they left nothing.

    `workers` of them run at a time; by default as many as suit the launcher.
    """

    experiments: Mapping[str, ExperimentConfig]
    kind: str = "sweep"
    workers: int = 0
    kept: Mapping[str, Result] = field(default_factory=dict)
    foreseen: Mapping[str, ExperimentConfig] = field(default_factory=dict)
    planned: Sequence[str] = ()
    damaged: Sequence[str] = ()
    compared: ComparisonData | None = field(default=None, init=False)

    @property
    def tags(self) -> dict[str, str]:
        """Every run bears the sweep's name."""
        return {f"dpprof.{self.kind}": self.name}

    can_be_resumed = True

    @property
    def names(self) -> list[str]:
        """The names of all its experiments."""
        return list(dict.fromkeys([*self.planned, *self.experiments]))

    @property
    def missing(self) -> list[str]:
        """The names of the experiments that came to no end."""
        ended = {result.name for result in self.results if not result.was_cut_off}
        return [name for name in self.names if name not in ended]

    @property
    def status(self) -> str:
        """MLflow's status of the parent run: KILLED too where experiments are missing."""
        return KILLED if self.missing else super().status

    @property
    def has_several_models(self) -> bool:
        """Whether its experiments train different models."""
        return len({config.model_name for config in self.experiments.values()}) > 1

    def experiment_to_check(self) -> ExperimentConfig | None:
        """The first that is to be done."""
        return next((config for name, config in self.experiments.items() if name not in self.kept), None)

    def open_parent(self, tracker: Tracker) -> str:
        """Open the parent run, the earlier one of a sweep that is resumed."""
        earlier = self.folder.read_state().get("mlflow_run_id")
        params = shared_settings(self.experiments) | {"num_experiments": len(self.names)}
        return tracker.start_parent(self.name, self.kind, params, self.folder, earlier)

    def stages(self) -> Iterator[Stage]:
        """Every experiment, in order; then the estimates of a larger model."""
        assert self.parent is not None, "opened before"
        self.folder.write_state(self.kind, self.parent, self.names)
        foreseen = self.folder.foreseen
        ahead = {
            name: config for name, config in self.foreseen.items() if not _is_complete(foreseen.run(name))
        }
        num, total = len(self.experiments), len(self.experiments) + len(ahead)
        planned = [
            Planned(i, total, name, config)
            for i, (name, config) in enumerate(self.experiments.items(), start=1)
        ]
        yield Stage([partial(self._run, one) for one in planned], self._at_a_time(planned, self.workers))
        estimates = [
            Planned(i, total, name, config, self.folder.foreseen)
            for i, (name, config) in enumerate(ahead.items(), start=num + 1)
        ]
        if estimates:
            yield Stage([partial(self._foresee, one) for one in estimates], self._at_a_time(estimates))

    def _at_a_time(self, planned: Sequence[Planned], workers: int = 0) -> int:
        """They are alike in what they need: a grid varies neither the device nor the number of ranks."""
        return at_a_time(self.launcher, planned[0].config, workers) if planned else 1

    def _run(self, planned: Planned, run_one: RunOne) -> list[Result]:
        return [self.kept[planned.name] if planned.name in self.kept else run_one(planned)]

    def _foresee(self, planned: Planned, run_one: RunOne) -> list[Result]:
        """Nothing of it is kept as a result: it lies in its folder, where the verdict finds it."""
        run_one(planned)
        return []

    def has_failed(self) -> bool:
        """Out of memory is a finding, not a fault."""
        return bool(failed_results(self.results) or results_judged(self.results, FAIL))

    def summarize(self) -> Summary:
        """Compare the results, and write the comparison. A stop leaves out none of those that were kept."""
        seen = {result.name for result in self.results}
        self.results += [result for name, result in self.kept.items() if name not in seen]
        if not self.results:
            return Summary("stopped before anything was measured")
        data, files = write_sweep_reports(self.folder, self.results)
        self.compared, comparison = data, data.comparison
        ratios: dict[str, dict[str, float]] = {}
        for cell in comparison.cells:
            for run in cell.finished:
                shown = set(HEADLINE_RATIOS)
                if comparison.is_disturbed_at(cell):  # MLflow has no mark to show beside a figure
                    shown -= RATIOS_OF_TIMES
                figures = comparison.ratios(cell, run)
                ratios[run.name] = {n: figures[n] for n in HEADLINE_RATIOS if n in figures.keys() & shown}
        best = recommended(comparison, data.findings)
        is_estimate = next(iter(self.experiments.values())).is_estimate
        prefix = f"{ESTIMATE}/" if is_estimate else ""
        return Summary(
            description(data),
            files,
            export.table(data),
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

    def raise_for_end(self) -> None:
        """Stopped, failed, or a gradient check that could not tell."""
        if self.interrupted:
            done = sum(result.status == FINISHED for result in self.results)
            how = f"give the same options with sweep_name={self.name} resume=true"
            raise Interrupted(
                f"stopped; {done} of {len(self.experiments)} experiments are finished and kept in "
                f"{self.folder.path}" + (f". To go on, {how}" if self.can_be_resumed else "")
            )
        failed = failed_results(self.results)
        if failed:
            names = ", ".join(result.name for result in failed)
            raise ExperimentsFailed(f"{len(failed)} of {len(self.experiments)} experiments failed: {names}")
        raise_for_checks(self.results)


def shared_settings(experiments: Mapping[str, ExperimentConfig]) -> dict[str, object]:
    """The settings that all experiments have in common, with the number of experiments."""
    configs = [to_flat(config) for config in experiments.values()]
    shared = {
        name: value
        for name, value in configs[0].items()
        if all(name in config and config[name] == value for config in configs)
    }
    return shared | {"num_experiments": len(configs)}


def differing_settings(experiments: Mapping[str, ExperimentConfig]) -> list[str]:
    """The settings in which experiments differ beside the trainer."""
    shared = {"trainer": None} | shared_settings(experiments)
    names = dict.fromkeys(name for config in experiments.values() for name in to_flat(config))
    return [name for name in names if name not in shared]


def _is_complete(folder: RunFolder) -> bool:
    try:
        return folder.config.exists() and read_result(folder).is_complete
    except DpprofError:
        return False


def reusable_results(sweep: Sweep) -> dict[str, Result]:
    """The complete results that a resumed sweep keeps, by run name.

    What cannot be read is not kept; `sweep.damaged` tells.
    Not those that went without the hardware counters asked for where these can be had by now.
    Raises ConfigError if one of its cells was measured with other settings than those given now.
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
