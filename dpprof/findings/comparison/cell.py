"""One experiment's settings, all its runs, and their figures taken together."""

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from dpprof.config.experiment import ExperimentConfig
from dpprof.config.flat import BUDGET, HOW_MEASURED, from_flat
from dpprof.findings.comparison.run import Run
from dpprof.record.figures.estimate import fit_sentence
from dpprof.record.figures.figures import PhaseFigures
from dpprof.record.figures.names import CAPACITY, DOUBT, FITS, GROWTH, LARGEST_BATCH, NEEDED, PEAK
from dpprof.record.figures.results import FINISHED, describe_precision
from dpprof.record.figures.step import LogicalStep
from dpprof.record.figures.verdicts import CANNOT_TELL, FAIL, PASS
from dpprof.record.record import FailureKind, PrivacyResult
from dpprof.vocabulary.clipping import OTHER_ALGORITHMS
from dpprof.vocabulary.formats import memory
from dpprof.vocabulary.trainers import trainer_info

# Verdicts of the gradient check, the worst last.
_WORSE = (PASS, CANNOT_TELL, FAIL).index
T = TypeVar("T")


@dataclass(frozen=True)
class Cell:
    """One experiment of one source (a sweep, or a single run), with all its runs."""

    source: str
    settings: dict[str, Any]
    runs: list[Run]

    @property
    def trainer(self) -> str:
        """Class name of the trainer."""
        return str(self.settings["trainer"])

    @cached_property
    def config(self) -> ExperimentConfig:
        """Configuration of the experiment."""
        return from_flat(self.settings)

    @property
    def experiment(self) -> tuple[object, ...]:
        """Identity apart from how it was measured; with Poisson sampling, with the batch of its memory."""
        left_out = (*HOW_MEASURED, *BUDGET)
        named = tuple(item for item in self.settings.items() if item[0] not in left_out)
        if not self.config.poisson_sampling:
            return named
        batch = self.config.estimated_batch if self.is_estimate else self.figures.get(LARGEST_BATCH)
        return (*named, batch)

    @property
    def is_estimate(self) -> bool:
        """True if its figures were computed on fake tensors."""
        return self.config.is_estimate

    @property
    def algorithm(self) -> str:
        """Difference from DP-SGD with flat clipping, in words; empty if there is none."""
        of_clipping = OTHER_ALGORITHMS.get(str(self.settings.get("clipping", "")))
        return of_clipping or trainer_info(self.trainer).other_algorithm

    @property
    def finished(self) -> list[Run]:
        """Runs that finished."""
        return [run for run in self.runs if run.status == FINISHED]

    @property
    def calm(self) -> list[Run]:
        """Finished runs that were not disturbed."""
        return [run for run in self.finished if not run.disturbances]

    @property
    def is_disturbed(self) -> bool:
        """True if all its finished runs were disturbed, so that its step times do not compare."""
        return bool(self.finished) and not self.calm

    @property
    def representative(self) -> list[Run]:
        """Runs behind the figures: finished and undisturbed, else finished, else all."""
        return self.calm or self.finished or self.runs

    @property
    def status(self) -> str:
        """FINISHED if any run did, else the status of the first."""
        return FINISHED if self.finished else self.runs[0].status

    @property
    def failure(self) -> FailureKind | None:
        """Kind of failure, if no run finished."""
        return None if self.finished else self.runs[0].failure

    @property
    def gradient_check(self) -> str | None:
        """Worst verdict of the gradient check; None if it was not requested."""
        return max((run.gradient_check for run in self.runs if run.gradient_check), key=_WORSE, default=None)

    @property
    def privacy(self) -> PrivacyResult | None:
        """Privacy spent on a data set of known size: of several runs, that of one without an epsilon."""
        known = (run.privacy for run in self.finished if run.privacy is not None)
        return min(known, key=lambda found: found.epsilon is not None, default=None)

    @property
    def environment(self) -> dict[str, str]:
        """Environment of the first run that knows it."""
        return next(iter(self.environments), {})

    @property
    def environments(self) -> list[dict[str, str]]:
        """Environments of the runs behind the figures, where known."""
        return [run.environment for run in self.representative if run.environment]

    @property
    def num_parameters(self) -> int | None:
        """Number of parameters of the model, if any run built it."""
        known = (run.num_parameters for run in self.representative if run.num_parameters is not None)
        return next(known, None)

    @property
    def weights_dtype(self) -> str:
        """Types of the weights in words, empty if not known; runs of one experiment may differ in them."""
        return " or ".join(sorted({run.weights_dtype for run in self.representative if run.weights_dtype}))

    @property
    def precision(self) -> str:
        """Precision in words, with the type of the weights."""
        return describe_precision(self.config, self.weights_dtype)

    @cached_property
    def figures(self) -> dict[str, float]:
        """Figures by metric name: medians over the runs that have them."""
        return median_of([run.figures for run in self.representative])

    @property
    def peak_mib(self) -> float | None:
        """Peak of a step. None if the first pass did not finish: memory held at a failure is no peak."""
        came_far = bool(self.finished) or any(run.step_s for run in self.representative)
        return self.figures.get(PEAK) if came_far else None

    @cached_property
    def phases(self) -> dict[str, PhaseFigures]:
        """Figures of each phase: medians over the runs."""
        return median_of([run.phases for run in self.representative])

    @cached_property
    def at_peak(self) -> dict[str, float]:
        """MiB at the peak by category, without empty ones."""
        held = median_of([run.at_peak for run in self.representative])
        return {category: mib for category, mib in held.items() if mib}

    @property
    def peak_by_phase(self) -> dict[str, float]:
        """The ledger's peak in each phase, in MiB."""
        return {name: phase.peak_mib for name, phase in self.phases.items() if phase.peak_mib is not None}

    @property
    def phase_ms(self) -> dict[str, float]:
        """Median milliseconds of each phase."""
        return {name: phase.ms for name, phase in self.phases.items() if phase.ms is not None}

    @property
    def step(self) -> LogicalStep | None:
        """The step of an estimate; None where nothing is predicted."""
        return self.representative[0].step

    @property
    def moved_by_phase(self) -> dict[str, float]:
        """MiB read and written in each phase."""
        return {name: phase.moved_mib for name, phase in self.phases.items() if phase.moved_mib is not None}

    @cached_property
    def compared(self) -> list[str]:
        """Names of the figures whose ratio to standard training's means something."""
        return list(dict.fromkeys(name for run in self.representative for name in run.compared))

    @property
    def held_against(self) -> str:
        """Need of an estimate on its target device, and its fit; empty without one."""
        held = fit_sentence(self.is_held, self.fits, self.figures.get(GROWTH), self.figures.get(DOUBT))
        return f"needs {memory(self.figures[NEEDED], 2)}: {held}" if held else ""

    @property
    def is_held(self) -> bool:
        """True if it is an estimate for a device whose memory is known."""
        return CAPACITY in self.figures

    @property
    def fits(self) -> bool | None:
        """True if an estimate fits its target device; None if that is open."""
        return bool(self.figures[FITS]) if FITS in self.figures else None

    @property
    def limit_mib(self) -> float | None:
        """Memory of the device that it ran on, or of an estimate's target device."""
        if self.is_estimate:
            return self.figures.get(CAPACITY)
        name = "gpu_memory_gib" if self.config.device == "cuda" else "memory_gib"
        gib = self.environment.get(name)
        return None if gib is None else 1024 * float(gib)


def competing(cells: list[Cell], metric: str) -> list[Cell]:
    """Return the finished DP cells with a figure, lowest first, among which one may be called best.

    A trainer whose gradient is wrong does not compete. If there are several algorithms, which train different
    models, only DP-SGD with flat clipping competes.
    """
    able = [c for c in cells if trainer_info(c.trainer).is_private and c.finished and metric in c.figures]
    able = [c for c in able if c.gradient_check != FAIL]
    if len({cell.algorithm for cell in able}) > 1:
        able = [cell for cell in able if not cell.algorithm]
    return sorted(able, key=lambda cell: cell.figures[metric])


def median_of(runs: Sequence[T]) -> T:
    """Return the median of figures, of mappings by name, or of dataclasses field by field."""
    found: Any = None
    known: list[Any] = [run for run in runs if run is not None]
    first = known[0] if known else None
    if isinstance(first, Mapping):
        names = dict.fromkeys(name for run in known for name in run)
        found = {name: median_of([run[name] for run in known if name in run]) for name in names}
    elif dataclasses.is_dataclass(first) and not isinstance(first, type):
        fields = [field.name for field in dataclasses.fields(first)]
        medians = {name: median_of([getattr(run, name) for run in known]) for name in fields}
        found = dataclasses.replace(first, **medians)
    elif known:
        found = statistics.median(known)
    return found  # type: ignore[no-any-return]
