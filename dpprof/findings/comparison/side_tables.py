"""Tables beside the cells: counters, estimates and measurements, failures, how it was measured."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from dpprof.findings.comparison.cell import Cell
from dpprof.findings.comparison.comparison import Comparison
from dpprof.findings.comparison.places import full_name
from dpprof.findings.comparison.run import Run
from dpprof.record.figures import names
from dpprof.record.figures.capacity import device_of
from dpprof.record.figures.results import FAILED
from dpprof.record.figures.verdicts import FAIL
from dpprof.vocabulary.formats import listed, two
from dpprof.vocabulary.grouping import grouped
from dpprof.vocabulary.precision import may_be_alike
from dpprof.vocabulary.trainers import trainer_info

# Names, and commonly expected ratios to standard training, of bytes at one level in one direction.
EXPECTED = {
    names.DRAM_READ: ("DRAM read", 2.0, 5.0),
    names.DRAM_WRITTEN: ("DRAM written", 2.0, 5.0),
    names.L2_READ: ("L2 read", 1.5, 3.0),
    names.L2_WRITTEN: ("L2 written", 1.5, 3.0),
}
_IN_WORDS = (
    "Commonly expected of DP-SGD: 2 to 5 times the DRAM traffic of standard training, 1.5 to 3 times its L2 "
    "traffic."
)
_LISTED = 4


def counted(cells: Iterable[Cell]) -> list[Cell]:
    """Return the finished cells that have counters, in order."""
    return [cell for cell in cells if cell.finished and names.KERNEL_MS in cell.figures]


def side(comparison: Comparison, cell: Cell, metric: str) -> str:
    """Return `below` or `above` if a private trainer's ratio to standard is not as expected, else nothing."""
    _, low, high = EXPECTED[metric]
    ratio = comparison.ratio(cell, metric)
    if ratio is None or not trainer_info(cell.trainer).is_private:
        return ""
    return "below" if ratio < low else "above" if ratio > high else ""


def judgement(comparison: Comparison) -> list[str]:
    """Compare ratios with what is commonly expected, in sentences; empty without a ratio."""
    private = [cell for cell in counted(comparison.cells) if trainer_info(cell.trainer).is_private]
    if not any(comparison.ratio(cell, metric) for cell in private for metric in EXPECTED):
        return []
    sentences = []
    for metric, (name, low, high) in EXPECTED.items():
        for word, limit in (("below", low), ("above", high)):
            found = [
                f"{cell.trainer} at {full_name(comparison, cell)} ({two(comparison.ratio(cell, metric))})"
                for cell in private
                if side(comparison, cell, metric) == word
            ]
            if found:
                sentences.append(f"{name}: {word} {limit:g} times standard: {listed(found, _LISTED)}.")
    return [_IN_WORDS, *(sentences or ["What was counted agrees."])]


class Beside(NamedTuple):
    """A figure of an experiment, measured and estimated; None where a side does not tell."""

    measured: float | None
    estimated: float | None

    @property
    def off_pct(self) -> float | None:
        """Excess of the estimate in percent."""
        if self.estimated is None or not self.measured:
            return None
        return 100 * (self.estimated / self.measured - 1)


class Pair(NamedTuple):
    """One experiment estimated and measured."""

    estimate: Cell
    measured: Cell

    @property
    def tensors(self) -> Beside:
        """Peaks of the ledger, which must agree."""
        return self._beside(names.LEDGER_PEAK)

    @property
    def allocator(self) -> Beside:
        """Peaks of torch's allocator."""
        return self._beside(names.PEAK)

    @property
    def step(self) -> Beside:
        """Step times in ms. One is predicted if the other was measured on the device estimated for."""
        device, environment = device_of(self.estimate.config), self.measured.environment
        times_of = self.estimate.environment.get("times_of", "")
        is_same = device is not None and device.is_named(environment.get("gpu", ""))
        is_same |= bool(times_of) and times_of in (environment.get("gpu"), environment.get("cpu"))
        predicted = self.estimate.figures.get(names.PREDICTED) if is_same else None
        return Beside(self.measured.figures.get(names.STEP), predicted)

    def _beside(self, metric: str) -> Beside:
        return Beside(self.measured.figures.get(metric), self.estimate.figures.get(metric))


def pairs(comparison: Comparison) -> list[Pair]:
    """Return every estimate with its measurement, in the order of the cells."""
    measured = _measured(comparison)
    estimates = [cell for cell in comparison.cells if cell.is_estimate and cell.finished]
    return [Pair(cell, twin) for cell in estimates if (twin := _twin(cell, measured))]


def _measured(comparison: Comparison) -> dict[object, list[Cell]]:
    measured = (cell for cell in comparison.cells if not cell.is_estimate and cell.finished)
    return grouped(measured, lambda cell: cell.experiment)


def _twin(estimate: Cell, measured: Mapping[object, list[Cell]]) -> Cell | None:
    """Return the last measured cell of an estimate's experiment, unless its weights have another type."""
    alike = [
        cell
        for cell in measured.get(estimate.experiment, ())
        if may_be_alike(cell.weights_dtype, estimate.weights_dtype)
    ]
    return alike[-1] if alike else None


def without_paired(comparison: Comparison) -> Comparison:
    """Return the comparison without estimates of experiments that were measured too."""
    measured = _measured(comparison)
    kept = [c for c in comparison.cells if not c.is_estimate or not _twin(c, measured)]
    return Comparison(comparison.name, kept)


_LONGEST = 300


class FailedRun(NamedTuple):
    """A run that failed, or whose later pass or gradient check did, and why."""

    name: str
    failure: str
    reason: str


def failed_runs(comparison: Comparison) -> list[FailedRun]:
    """Return the runs that failed (even for lack of memory), or whose later pass or gradient check did."""
    return [
        FailedRun(
            run.name, run.failure or ("later pass" if run.failed_passes else "gradient check"), reason(run)
        )
        for run in comparison.runs
        if run.status == FAILED or run.failure or run.failed_passes or run.gradient_check == FAIL
    ]


def reason(run: Run) -> str:
    """Return why a run, or a pass of it, failed, in one line."""
    reasons = [run.reason] if run.reason else []
    reasons += [f"{name} pass: {why}" for name, why in run.failed_passes.items()]
    if run.gradient_check == FAIL:
        reasons.append(f"gradient check: {run.gradient_check_reason}")
    first_lines = [why.strip().splitlines()[0] if why.strip() else "" for why in reasons]
    return "; ".join(first_lines)[:_LONGEST]


def how_measured(comparison: Comparison) -> list[dict[str, str]]:
    """Return a row of texts for each source; values that its cells share appear once."""
    rows = []
    for source in comparison.sources:
        cells = [cell for cell in comparison.cells if cell.source == source]
        row = {"source": source, "runs of a cell": _values(len(cell.runs) for cell in cells)}
        row |= {
            name.replace("_", " "): _values(cell.settings[name] for cell in cells)
            for name in ("warmup_steps", "measured_steps", "passes", "device")
        }
        row["precision"] = _values(comparison.precision(cell) for cell in cells)
        environments = [environment for cell in cells for environment in cell.environments]
        row |= {
            name.replace("_", " "): _values(environment.get(name, "") for environment in environments)
            for name in dict.fromkeys(name for environment in environments for name in environment)
        }
        rows.append(row)
    return rows


def _values(values: Iterable[object]) -> str:
    return ", ".join(dict.fromkeys(map(str, values)))
