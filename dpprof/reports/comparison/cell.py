"""One experiment's settings with every run of them, and the figures of these together."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dpprof.config.experiment import ExperimentConfig
from dpprof.config.flat import BUDGET, HOW_MEASURED, from_flat
from dpprof.figures.estimate import held_against
from dpprof.figures.gradient_verdict import CANNOT_TELL, FAIL, PASS
from dpprof.figures.medians import median_of
from dpprof.figures.names import CAPACITY, FITS, PEAK
from dpprof.figures.phases import PhaseFigures
from dpprof.figures.results import FINISHED
from dpprof.reports.comparison.run import Run
from dpprof.vocabulary.clipping import OTHER_ALGORITHMS
from dpprof.vocabulary.trainers import trainer_info

# Verdicts of the gradient check, the worst last.
_WORSE = (PASS, CANNOT_TELL, FAIL).index


@dataclass(frozen=True)
class Cell:
    """One experiment of one source (a sweep, or a single run), with all its runs."""

    source: str
    settings: dict[str, Any]
    runs: list[Run]

    @property
    def trainer(self) -> str:
        """The trainer's class name."""
        return str(self.settings["trainer"])

    @cached_property
    def config(self) -> ExperimentConfig:
        """The experiment's configuration."""
        return from_flat(self.settings)

    @property
    def experiment(self) -> tuple[object, ...]:
        """What it measures, however it was measured; under Poisson sampling with the batch of its memory."""
        left_out = (*HOW_MEASURED, *BUDGET)
        named = tuple(item for item in self.settings.items() if item[0] not in left_out)
        if not self.config.poisson_sampling:
            return named
        batch = self.config.estimated_batch if self.is_estimate else self.figures.get("step/largest_batch")
        return (*named, batch)

    @property
    def is_estimate(self) -> bool:
        """Whether its figures were computed on fake tensors."""
        return self.config.is_estimate

    @property
    def algorithm(self) -> str:
        """What makes it another algorithm than DP-SGD with flat clipping; empty where it is none."""
        of_clipping = OTHER_ALGORITHMS.get(str(self.settings.get("clipping", "")))
        return of_clipping or trainer_info(self.trainer).other_algorithm

    @property
    def finished(self) -> list[Run]:
        """The runs that finished."""
        return [run for run in self.runs if run.status == FINISHED]

    @property
    def calm(self) -> list[Run]:
        """The runs that finished and were timed in peace."""
        return [run for run in self.finished if not run.disturbances]

    @property
    def is_disturbed(self) -> bool:
        """Whether it finished, and no run of it was timed in peace: its step times do not compare."""
        return bool(self.finished) and not self.calm

    @property
    def representative(self) -> list[Run]:
        """The runs behind the figures: the calm ones of those that finished, if there are any; else those
        that finished, or what the others left.
        """
        return self.calm or self.finished or self.runs

    @property
    def status(self) -> str:
        """FINISHED if any of the runs did; else as the first one ended."""
        return FINISHED if self.finished else self.runs[0].status

    @property
    def failure(self) -> str | None:
        """The kind of failure if no run finished."""
        return None if self.finished else self.runs[0].failure

    @property
    def gradient_check(self) -> str | None:
        """The worst that the gradient check says of a run; None where it was not asked for."""
        return max((run.gradient_check for run in self.runs if run.gradient_check), key=_WORSE, default=None)

    @property
    def environment(self) -> dict[str, str]:
        """Where it was measured, as the first run that knows tells."""
        return next(iter(self.environments), {})

    @property
    def environments(self) -> list[dict[str, str]]:
        """Where each of the runs behind the figures was measured, of those that know."""
        return [run.environment for run in self.representative if run.environment]

    @property
    def num_parameters(self) -> int | None:
        """Parameters of the model, if any run came as far as building it."""
        known = (run.num_parameters for run in self.representative if run.num_parameters is not None)
        return next(known, None)

    @cached_property
    def figures(self) -> dict[str, float]:
        """Every figure by metric name: with several runs, the median of those that have it."""
        return median_of([run.figures for run in self.representative])

    @property
    def peak_mib(self) -> float | None:
        """The peak of a step. None where the first pass did not finish: what a run held when it failed is no
        peak.
        """
        came_far = bool(self.finished) or any(run.step_s for run in self.representative)
        return self.figures.get(PEAK) if came_far else None

    @cached_property
    def phases(self) -> dict[str, PhaseFigures]:
        """What is said of each phase: with several runs, the medians."""
        return median_of([run.phases for run in self.representative])

    @cached_property
    def at_peak(self) -> dict[str, float]:
        """MiB at the peak by category, those that hold something."""
        held = median_of([run.at_peak for run in self.representative])
        return {category: mib for category, mib in held.items() if mib}

    @property
    def peak_by_phase(self) -> dict[str, float]:
        """The ledger's peak in each phase, in MiB."""
        peaks = {name: phase.peak_mib for name, phase in self.phases.items()}
        return {name: peak for name, peak in peaks.items() if peak is not None}

    @property
    def phase_ms(self) -> dict[str, float]:
        """Median milliseconds of each phase."""
        return {name: phase.ms for name, phase in self.phases.items() if phase.ms is not None}

    @property
    def moved_by_phase(self) -> dict[str, float]:
        """MiB read and written in each phase."""
        moved = {name: phase.moved_mib for name, phase in self.phases.items()}
        return {name: mib for name, mib in moved.items() if mib is not None}

    @cached_property
    def compared(self) -> list[str]:
        """The names of its figures whose ratio to standard training's means something."""
        return list(dict.fromkeys(name for run in self.representative for name in run.compared))

    @property
    def held_against(self) -> str:
        """Whether an estimate fits the device that it is held against; empty if there is none."""
        is_held, fits = CAPACITY in self.figures, self.figures.get(FITS)
        growth = self.figures.get("memory/growth_per_step_mib")
        doubt = self.figures.get("memory/doubt_mib")
        return held_against(is_held, None if fits is None else bool(fits), growth, doubt)

    @property
    def limit_mib(self) -> float | None:
        """The memory of the device that it ran on, or that an estimate is held against."""
        if self.is_estimate:
            return self.figures.get(CAPACITY)
        name = "gpu_memory_gib" if self.config.device == "cuda" else "memory_gib"
        gib = self.environment.get(name)
        return None if gib is None else 1024 * float(gib)


def competing(cells: list[Cell], metric: str) -> list[Cell]:
    """The finished DP cells with a figure, the lowest first, among which one may be called best.

    A trainer whose gradient is wrong does not compete, nor does one of another algorithm beside DP-SGD with
    flat clipping: it trains another model. Where only one other algorithm was run, its trainers do.
    """
    able = [c for c in cells if trainer_info(c.trainer).is_private and c.finished and metric in c.figures]
    able = [c for c in able if c.gradient_check != FAIL]
    if len({cell.algorithm for cell in able}) > 1:
        able = [cell for cell in able if not cell.algorithm]
    return sorted(able, key=lambda cell: cell.figures[metric])
