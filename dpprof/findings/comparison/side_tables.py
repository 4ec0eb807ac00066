"""Tables beside the cells: privacy, FLOPs, counters, estimates, failures, how it was measured."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Self

from dpprof.findings.comparison.cell import Cell
from dpprof.findings.comparison.comparison import Comparison
from dpprof.findings.comparison.run import Run
from dpprof.record.figures import names
from dpprof.record.figures.capacity import device_of
from dpprof.record.figures.privacy import rounded_up
from dpprof.record.figures.results import FAILED
from dpprof.record.figures.verdicts import FAIL
from dpprof.record.record import PrivacyResult
from dpprof.vocabulary.formats import fixed, listed
from dpprof.vocabulary.grouping import grouped
from dpprof.vocabulary.precision import may_be_alike
from dpprof.vocabulary.trainers import trainer_info


class Where(NamedTuple):
    """The cell of a row: its model, place and trainer."""

    model: str
    place: str
    trainer: str

    @classmethod
    def of(cls, comparison: Comparison, cell: Cell) -> Self:
        """Name a cell."""
        return cls(comparison.model(cell).label, comparison.place_name(cell), cell.trainer)


class PrivacyRow(NamedTuple):
    """The privacy guarantee of one cell, with epsilon rounded up, or `none`."""

    where: Where
    guarantee: PrivacyResult
    epsilon: str


def privacy_rows(comparison: Comparison) -> list[PrivacyRow]:
    """Return the guarantee of each cell on a data set of known size: of several, one without an epsilon."""
    rows = []
    for cell in comparison.cells:
        known = [run.privacy for run in cell.finished if run.privacy is not None]
        if known:
            found = min(known, key=lambda one: one.epsilon is not None)
            epsilon = "none" if found.epsilon is None else rounded_up(found.epsilon)
            rows.append(PrivacyRow(Where.of(comparison, cell), found, epsilon))
    return rows


_GIGA = 1e9


class FlopRow(NamedTuple):
    """GFLOP of a cell's linear layers and convolutions; `ratio` is the theory's to standard training.

    `off_pct` is the excess of the count over the theory.
    """

    where: Where
    in_theory: float
    ratio: float | None
    counted: float
    off_pct: float


def flop_rows(comparison: Comparison) -> list[FlopRow]:
    """Return the finished cells whose trainer has a formula, in order."""
    rows = []
    for cell in comparison.cells:
        theory, standard = cell.figures.get(names.FLOPS_IN_THEORY), comparison.standard(cell)
        if not cell.finished or not theory:
            continue
        of_standard = standard.figures.get(names.FLOPS_IN_THEORY) if standard else None
        ratio, counted = theory / of_standard if of_standard else None, cell.figures[names.FLOPS_OF_LAYERS]
        off_pct = 100 * (counted / theory - 1)
        rows.append(FlopRow(Where.of(comparison, cell), theory / _GIGA, ratio, counted / _GIGA, off_pct))
    return rows


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


class CountedBytes(NamedTuple):
    """MiB that a step moves at one level. `side` is `below` or `above` if the ratio is not as expected."""

    mib: float | None
    ratio: float | None
    side: str | None


class CounterRow(NamedTuple):
    """One cell's counters, `moved` in the order of `EXPECTED`.

    `dram_to_ledger` is DRAM bytes over those that operators ask for.
    """

    where: Where
    kernel_ms: float
    moved: list[CountedBytes]
    dram_to_ledger: float | None


def counter_rows(comparison: Comparison) -> list[CounterRow]:
    """Return the finished cells that have counters, in order."""
    return [
        CounterRow(
            Where.of(comparison, cell),
            cell.figures[names.KERNEL_MS],
            [_moved(comparison, cell, metric) for metric in EXPECTED],
            cell.figures.get(names.DRAM_TO_LEDGER),
        )
        for cell in comparison.cells
        if cell.finished and names.KERNEL_MS in cell.figures
    ]


def _moved(comparison: Comparison, cell: Cell, metric: str) -> CountedBytes:
    _, low, high = EXPECTED[metric]
    ratio = comparison.ratio(cell, metric)
    side = None
    if ratio is not None and trainer_info(cell.trainer).is_private:
        side = "below" if ratio < low else "above" if ratio > high else None
    return CountedBytes(cell.figures.get(metric), ratio, side)


def judgement(rows: list[CounterRow]) -> list[str]:
    """Compare ratios with what is commonly expected, in sentences; empty without a ratio."""
    private = [row for row in rows if trainer_info(row.where.trainer).is_private]
    if not any(moved.ratio for row in private for moved in row.moved):
        return []
    sentences = []
    for index, (name, low, high) in enumerate(EXPECTED.values()):
        for side, limit in (("below", low), ("above", high)):
            found = [
                f"{trainer} at {model}, {place} ({fixed(moved[index].ratio, 2)})"
                for (model, place, trainer), _, moved, _ in private
                if moved[index].side == side
            ]
            if found:
                sentences.append(f"{name}: {side} {limit:g} times standard: {listed(found, _LISTED)}.")
    return [_IN_WORDS, *(sentences or ["What was counted agrees."])]


class Pair(NamedTuple):
    """One experiment measured and estimated; None where a side does not tell.

    The estimate must agree with `ledger_mib`, the peak under the ledger; `allocator_mib` is torch's
    allocator's. Percentages are the estimate's excess. A step's predicted time is known if it was measured on
    the device estimated for.
    """

    name: str
    ledger_mib: float | None
    estimated_mib: float | None
    ledger_off_pct: float | None
    allocator_mib: float | None
    estimated_allocator_mib: float | None
    allocator_off_pct: float | None
    step_ms: float | None
    predicted_ms: float | None
    predicted_off_pct: float | None


def pairs(comparison: Comparison) -> list[Pair]:
    """Return every estimate with its measurement, in the order of the cells."""
    measured = _measured(comparison)
    estimates = [cell for cell in comparison.cells if cell.is_estimate and cell.finished]
    return [_pair(cell, twin) for cell in estimates if (twin := _twin(cell, measured))]


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


def _pair(estimate: Cell, twin: Cell) -> Pair:
    device, measured_on = device_of(estimate.config), twin.environment
    is_same_device = device is not None and device.is_named(measured_on.get("gpu", ""))
    times_of = estimate.environment.get("times_of", "")
    is_same_device |= bool(times_of) and times_of in (measured_on.get("gpu"), measured_on.get("cpu"))
    predicted = estimate.figures.get(names.PREDICTED) if is_same_device else None
    step = twin.figures.get(names.STEP)
    of_tensors, of_allocator = (
        (twin.figures.get(name), estimate.figures.get(name)) for name in (names.LEDGER_PEAK, names.PEAK)
    )
    return Pair(
        twin.runs[0].name,
        *of_tensors,
        _off_pct(*of_tensors),
        *of_allocator,
        _off_pct(*of_allocator),
        step,
        predicted,
        _off_pct(step, predicted),
    )


def _off_pct(measured: float | None, estimated: float | None) -> float | None:
    return 100 * (estimated / measured - 1) if estimated is not None and measured else None


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
