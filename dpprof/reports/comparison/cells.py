"""Results as rows that stand side by side: plain data, and the JSON file that keeps it.

A cell is one experiment's settings with every run of them; a place is what cells of several trainers share.
"""

import dataclasses
import json
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

from dpprof.config.experiment import ExperimentConfig
from dpprof.config.flat import HOW_MEASURED, from_flat, to_flat, trainers_options
from dpprof.config.model_sizes import MODEL_SIZES
from dpprof.errors import DpprofError
from dpprof.figures.capacity import reservations
from dpprof.figures.gradient_verdict import CANNOT_TELL, FAIL, PASS
from dpprof.figures.metrics import MIB, memory_metrics, metrics, part, ratios
from dpprof.figures.results import FAILED, FINISHED, Result, describe_steps, device_name, nonfinite_losses
from dpprof.record.record import Record
from dpprof.reports.comparison.calm import disturbances
from dpprof.reports.comparison.models import Model, models_of
from dpprof.vocabulary.loops import LEAN
from dpprof.vocabulary.trainers import STANDARD, trainer_order
from dpprof.vocabulary.workloads import BUILT_IN_WORKLOAD

SCHEMA_VERSION = 1
PEAK = "memory/peak_allocated_mib"
STEP = "latency/step_ms_median"
IQR = "latency/step_ms_iqr"
SAMPLES = "throughput/samples_per_s"
MOVED = "io/total_mib"
# Verdicts of the gradient check, the worst last.
_WORSE = (PASS, CANNOT_TELL, FAIL).index


@dataclass(frozen=True)
class MovedBytes:
    """MiB that one operator class reads and writes in one phase of a step (None: between phases)."""

    phase: str | None
    operator_class: str
    mib: float


@dataclass(frozen=True)
class Run:
    """One measuring process's answer. `figures` go by metric name, without those that compare runs.

    `step_s` are the timed steps in seconds, `pace` those of the pace pass in times its fixed computation;
    `peak_phase` is the phase in which the ledger's peak lies; `reservations` are what an estimate rests on,
    `doubts` what it cannot follow, in words, with the bytes that this may come to (None: unbounded).
    `gradient_check` is its verdict; `nonfinite_losses` says how many there are, if any.
    """

    name: str
    status: str
    failure: str | None = None
    reason: str | None = None
    failed_passes: dict[str, str] = field(default_factory=dict)
    skipped_passes: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    num_parameters: int | None = None
    environment: dict[str, str] = field(default_factory=dict)
    figures: dict[str, float] = field(default_factory=dict)
    step_s: list[float] = field(default_factory=list)
    pace: list[float] = field(default_factory=list)
    peak_phase: str | None = None
    moved: list[MovedBytes] = field(default_factory=list)
    reservations: list[str] = field(default_factory=list)
    doubts: dict[str, int | None] = field(default_factory=dict)
    gradient_check: str | None = None
    gradient_check_reason: str | None = None
    nonfinite_losses: str | None = None

    @cached_property
    def disturbances(self) -> list[str]:
        """Why its step times do not compare (`calm.py`); empty if it was timed in peace."""
        return disturbances(self.figures, self.step_s, self.environment)

    @classmethod
    def from_result(cls, result: Result) -> Self:
        """What a comparison needs of a result. Figures of an unfinished clean pass do not count."""
        record, failure = result.record, result.failure
        figures = memory_metrics(failure.memory) if failure is not None else {}
        run = cls(
            name=result.name,
            status=result.status,
            failure=failure.kind if failure else None,
            reason=failure.message if failure else None,
            num_parameters=record.num_parameters if record else None,
            environment=record.environment if record else {},
            figures=figures,
        )
        if record is None or not record.headline_finished:
            return run
        verdict = result.gradient_verdict
        moved: dict[tuple[str | None, str], int] = {}
        for row in record.ledger.traffic if record.ledger else ():
            key = (row.phase, row.operator_class)
            moved[key] = moved.get(key, 0) + row.read + row.written
        return dataclasses.replace(
            run,
            failed_passes=record.failed_passes,
            skipped_passes=record.skipped_passes,
            warnings=record.warnings,
            figures=figures | metrics(record),
            step_s=record.step_s,
            pace=record.pace.ratios if record.pace else [],
            peak_phase=record.ledger.peak_phase if record.ledger else None,
            reservations=_reservations(result.config, record),
            doubts={d.text: d.num_bytes for d in record.ledger.doubts} if record.ledger else {},
            gradient_check=verdict.word if verdict else None,
            gradient_check_reason=verdict.reason if verdict else None,
            nonfinite_losses=nonfinite_losses(record) if record.nonfinite_losses else None,
            moved=[MovedBytes(*key, num_bytes / MIB) for key, num_bytes in moved.items()],
        )

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Read what `dataclasses.asdict` made."""
        return cls(**data | {"moved": [MovedBytes(**row) for row in data["moved"]]})


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
        named = tuple(item for item in self.settings.items() if item[0] not in HOW_MEASURED)
        if not self.config.poisson_sampling:
            return named
        batch = self.config.estimated_batch if self.is_estimate else self.figures.get("step/largest_batch")
        return (*named, batch)

    @property
    def is_estimate(self) -> bool:
        """Whether its figures were computed on fake tensors."""
        return self.config.is_estimate

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
    def counted(self) -> list[Run]:
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
        return next((run.environment for run in self.counted if run.environment), {})

    @property
    def num_parameters(self) -> int | None:
        """Parameters of the model, if any run came as far as building it."""
        return next((run.num_parameters for run in self.counted if run.num_parameters is not None), None)

    @cached_property
    def figures(self) -> dict[str, float]:
        """Every figure by metric name: with several runs, the median of those that have it."""
        names = dict.fromkeys(name for run in self.counted for name in run.figures)
        return {
            name: statistics.median(run.figures[name] for run in self.counted if name in run.figures)
            for name in names
        }

    def part(self, prefix: str, suffix: str) -> dict[str, float]:
        """The figures named `<prefix><name><suffix>`, by name."""
        return part(self.figures, prefix, suffix)

    @property
    def at_peak(self) -> dict[str, float]:
        """MiB at the peak by category, those that hold something."""
        return {name: mib for name, mib in self.part("memory/at_peak/", "_mib").items() if mib}

    @property
    def peak_by_phase(self) -> dict[str, float]:
        """The ledger's peak in each phase, in MiB."""
        return self.part("memory/peak_in_", "_mib")

    @property
    def phase_ms(self) -> dict[str, float]:
        """Median milliseconds of each phase."""
        named = self.part("latency/", "_ms")
        return {name: ms for name, ms in named.items() if not name.startswith("step_ms")}

    @property
    def moved_by_phase(self) -> dict[str, float]:
        """MiB read and written in each phase."""
        read, written = self.part("io/", "/read_mib"), self.part("io/", "/written_mib")
        return {phase: read[phase] + written[phase] for phase in read}

    @property
    def limit_mib(self) -> float | None:
        """The memory of the device that it ran on, or that an estimate is held against."""
        if self.is_estimate:
            return self.figures.get("memory/capacity_mib")
        name = "gpu_memory_gib" if self.config.device == "cuda" else "memory_gib"
        gib = self.environment.get(name)
        return None if gib is None else 1024 * float(gib)


@dataclass(frozen=True)
class Comparison:
    """Cells in order: by model, then by place, then by trainer."""

    name: str
    cells: list[Cell]

    @property
    def sources(self) -> list[str]:
        """Where the cells come from."""
        return list(dict.fromkeys(cell.source for cell in self.cells))

    @cached_property
    def places(self) -> list[list[Cell]]:
        """The cells of each place."""
        found: dict[object, list[Cell]] = {}
        for cell in self.cells:
            found.setdefault(_place(cell), []).append(cell)
        return list(found.values())

    @property
    def steps(self) -> str:
        """What the steps of its cells are, as the head of a page says it; empty without cells."""
        found = list(dict.fromkeys(describe_steps(cell.config) for cell in self.cells))
        return f"Steps follow {'; or '.join(found)}." if found else ""

    def model(self, cell: Cell) -> Model:
        """What the cell trains."""
        return self._models[_place(cell)]

    @cached_property
    def _models(self) -> dict[object, Model]:
        places = self.places
        return dict(zip((_place(cells[0]) for cells in places), models_of(places), strict=True))

    @cached_property
    def varying(self) -> list[str]:
        """Settings that differ between the cells that have them, apart from model, batch and sequence."""
        shown = {"trainer", "model_size", "workload", "batch_size", "seq_len", *HOW_MEASURED}
        shown |= {"vocab_size", "hidden_dim", "num_layers", "num_heads"}
        found: dict[str, set[object]] = {}
        for cell in self.cells:
            for name in cell.settings.keys() - shown:
                found.setdefault(name, set()).add(cell.settings[name])
        names = dict.fromkeys(name for cell in self.cells for name in cell.settings)
        return [name for name in names if len(found.get(name, ())) > 1]

    def place_name(self, cell: Cell, without: str = "") -> str:
        """What tells a place from the others of its model: `batch 4, sequence 256`, and whatever varies.

        `without` names a setting to leave out.
        """
        names = {"batch_size": "batch", "seq_len": "sequence"} | {name: name for name in self.varying}
        named = [name for name in names if name != without and name in cell.settings]
        parts = [f"{names[name]} {cell.settings[name]}" for name in named]
        if cell.is_estimate:
            held_against = device_name(cell.config)
            parts.append(f"estimated for {held_against}" if held_against else "estimated")
        return ", ".join([*parts, cell.source] if len(self.sources) > 1 else parts)

    def standard(self, cell: Cell) -> Cell | None:
        """The finished cell of StandardTrainer at the same place."""
        twins = (other for other in self._by_place[_place(cell)] if other.trainer == STANDARD)
        return next((twin for twin in twins if twin.finished), None)

    @cached_property
    def _by_place(self) -> dict[object, list[Cell]]:
        return {_place(cells[0]): cells for cells in self.places}

    def is_disturbed_at(self, cell: Cell) -> bool:
        """Whether any cell at a cell's place was disturbed: then step times do not compare there."""
        return any(twin.is_disturbed for twin in self._by_place[_place(cell)])

    def ratios(self, cell: Cell, run: Run | None = None) -> dict[str, float]:
        """`vs_standard/...` ratios of a finished cell, or of one of its runs, to StandardTrainer's cell."""
        twin = self.standard(cell)
        if twin is None or not cell.finished:
            return {}
        return ratios(cell.figures if run is None else run.figures, twin.figures)

    def ratio(self, cell: Cell, metric: str) -> float | None:
        """The ratio of one figure to StandardTrainer's, where both finished."""
        return self.ratios(cell).get(f"vs_standard/{metric}_ratio")

    def to_json(self) -> str:
        """The text of `summary.json`."""
        return json.dumps({"schema_version": SCHEMA_VERSION} | dataclasses.asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read `summary.json`. Raises DpprofError if it is none of this schema version."""
        try:
            data = json.loads(text)
            if data["schema_version"] != SCHEMA_VERSION:
                raise DpprofError(f"it has schema version {data['schema_version']}, not {SCHEMA_VERSION}")
            cells = [
                Cell(cell["source"], _complete(cell["settings"]), [Run.from_dict(r) for r in cell["runs"]])
                for cell in data["cells"]
            ]
            return cls(data["name"], cells)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DpprofError(f"it is no comparison that dpprof exported: {error!r}") from error


def _complete(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings with those that an earlier dpprof did not have; 0.1 knew the lean loop alone."""
    return to_flat(from_flat({"loop": LEAN} | settings))


def compare(name: str, sources: Mapping[str, Iterable[Result]]) -> Comparison:
    """Set results side by side, by the name of the source that they come from."""
    grouped: dict[object, Cell] = {}
    for source, results in sources.items():
        for result in results:
            settings = to_flat(result.config)
            cell = grouped.setdefault((source, *settings.items()), Cell(source, settings, []))
            cell.runs.append(Run.from_result(result))
    return Comparison(name, sorted(grouped.values(), key=_order))


def merge(comparisons: Iterable[Comparison]) -> Comparison:
    """Several comparisons as one. Sources of one name are taken for one and the same."""
    parts = [comparison for comparison in comparisons if comparison.cells]
    cells = sorted((cell for part in parts for cell in part.cells), key=_order)
    return Comparison(" and ".join(part.name for part in parts), cells)


def _reservations(config: ExperimentConfig, record: Record) -> list[str]:
    return reservations(config, record.ledger) if config.is_estimate and record.ledger else []


def _place(cell: Cell) -> tuple[object, ...]:
    """What a cell shares with its twins: the source and every setting but the trainer and its own options."""
    own = {"trainer", *trainers_options(cell.config)}
    return (cell.source, *(value for name, value in cell.settings.items() if name not in own))


def _order(cell: Cell) -> tuple[object, ...]:
    settings, sizes, config = cell.settings, list(MODEL_SIZES), cell.config
    size = sizes.index(config.model_size) if config.model_size in sizes else len(sizes)
    factory = "" if config.workload == BUILT_IN_WORKLOAD else config.model_name
    model = (factory, config.workload, size, config.model_name)
    rest = tuple(map(str, _place(cell)))
    place = (settings["precision"], settings["seq_len"], settings["batch_size"], cell.source, rest)
    own = tuple(str(settings[name]) for name in sorted(trainers_options(config)))
    return (model, place, trainer_order(cell.trainer), own)


def faults(comparison: Comparison) -> list[tuple[Cell, Run]]:
    """The runs that failed, for want of memory too, or of which a later pass or the gradient check failed."""
    return [
        (cell, run)
        for cell in comparison.cells
        for run in cell.runs
        if run.status == FAILED or run.failure or run.failed_passes or run.gradient_check == FAIL
    ]
