"""Regressions since a baseline: memory compared exactly, step time with its spread."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from dpprof.errors import ConfigError
from dpprof.findings.comparison.cell import Cell
from dpprof.findings.comparison.comparison import Comparison
from dpprof.findings.comparison.intervals import pace_ratio, step_ratio
from dpprof.findings.comparison.side_tables import reason
from dpprof.record.figures.names import COLUMNS, PEAK, STEP

# Each bound of this interval holds with 95 % confidence.
_CONFIDENCE = 0.90
# Besides versions, times and torch's memory depend on these.
_MACHINE = ("cpu", "cpu_cores", "gpu", "torch_threads")


@dataclass(frozen=True)
class FigureChange:
    """One figure of one cell, before and now. `unit` is empty for how the experiment ended.

    `interval` is the 90 % confidence interval of `percent`: each bound holds with 95 % confidence.
    """

    cell: str
    what: str
    unit: str = ""
    before: float | None = None
    now: float | None = None
    percent: float | None = None
    interval: tuple[float, float] | None = None
    is_worse: bool = False
    note: str = ""


@dataclass(frozen=True)
class Check:
    """A comparison with a baseline. `unmatched` names cells that only one side has."""

    fail_above_pct: float
    changes: list[FigureChange]
    unmatched: list[str]
    doubts: list[str]

    @property
    def worse(self) -> list[FigureChange]:
        """Figures that got worse beyond the limit."""
        return [change for change in self.changes if change.is_worse]


def check(now: Comparison, baseline: Comparison, fail_above_pct: float) -> Check:
    """Compare the cells that have equal settings (apart from how they were measured) on both sides.

    A peak is worse if it grew by more than the limit, a step time if it did so with 95 % confidence. If both
    sides have a pace pass, step times are relative to its fixed computation, which leaves out the machine's
    speed. Step times are not judged from one run, nor from disturbed runs without pace passes. An experiment
    is also worse if a run of it failed, or a later pass of a run.

    Raises ConfigError if no cell is on both sides.
    """
    before, found = _by_settings(baseline), _by_settings(now)
    common = [key for key in found if key in before]
    if not common:
        raise ConfigError(
            f"baseline: {baseline.name} and {now.name} have no experiment with equal settings in common"
        )
    changes = [change for key in common for change in _changes(found[key], before[key], fail_above_pct)]
    unmatched = [f"{_name(found[key])}: not in the baseline" for key in found if key not in before]
    unmatched += [f"{_name(before[key])}: in the baseline only" for key in before if key not in found]
    return Check(fail_above_pct, changes, unmatched, list(_doubts(found, before, common)))


def _by_settings(comparison: Comparison) -> dict[object, Cell]:
    """Return the cells by what they measure, with the runs of several sources taken together."""
    found: dict[object, Cell] = {}
    for cell in comparison.cells:
        key = cell.experiment
        if key in found:
            cell = Cell(cell.source, cell.settings, [*found[key].runs, *cell.runs])
        found[key] = cell
    return found


def _name(cell: Cell) -> str:
    return cell.runs[0].name


def _changes(now: Cell, before: Cell, limit: float) -> Iterator[FigureChange]:
    name = _name(now)
    if not before.finished:
        yield FigureChange(name, "status", note=f"was {before.failure} in the baseline")
        return
    failed = next((run for run in now.runs if run.failure or run.failed_passes), None)
    if failed is not None:
        note = f"{failed.failure or 'later pass'}: {reason(failed)}".rstrip(": ")
        yield FigureChange(name, "status", is_worse=True, note=note)
    if not now.finished:
        return
    yield _peak(now, before, limit)
    if STEP in now.figures and STEP in before.figures:
        yield _time(now, before, limit)


def _peak(now: Cell, before: Cell, limit: float) -> FigureChange:
    peak, peak_before = now.figures.get(PEAK), before.figures.get(PEAK)
    change = FigureChange(_name(now), *COLUMNS[PEAK][:2], peak_before, peak)
    if peak is None or peak_before is None:
        when = "now" if peak is None else "in the baseline"
        return replace(change, note=f"not judged: not measured {when} (passes=clean,memory)")
    percent = 100 * (peak / peak_before - 1)
    return replace(change, percent=percent, is_worse=percent > limit)


def _time(now: Cell, before: Cell, limit: float) -> FigureChange:
    change = FigureChange(_name(now), *COLUMNS[STEP][:2], before.figures[STEP], now.figures[STEP])
    ratio = pace_ratio(now, before, _CONFIDENCE)
    notes = []
    if ratio is None:
        ratio = step_ratio(now, before, _CONFIDENCE)
        notes.append("no pace pass on both sides: includes how fast the machine was")
    if ratio is None:
        percent = 100 * (now.figures[STEP] / before.figures[STEP] - 1)
        note = "not judged: too few timed steps to tell the spread"
        if now.is_disturbed or before.is_disturbed:
            note = "not judged: the machine was disturbed, and there is no pace pass on both sides"
        return replace(change, percent=percent, note=note)
    if not ratio.between_runs:
        notes.append("not judged: one run, so that what differs between processes is not known (repeats=3)")
    percent, low, high = (100 * (value - 1) for value in (ratio.value, ratio.low, ratio.high))
    is_worse = ratio.between_runs and low > limit
    return replace(change, percent=percent, interval=(low, high), is_worse=is_worse, note="; ".join(notes))


def _doubts(found: dict[object, Cell], before: dict[object, Cell], common: list[object]) -> Iterator[str]:
    """Yield what else differs between the two sides and may explain a change."""
    types_now, types_then = (
        sorted({cell.weights_dtype for key in common if (cell := side[key]).weights_dtype})
        for side in (found, before)
    )
    if types_now and types_then and types_now != types_then:
        yield f"type of weights: {', '.join(types_then)} in the baseline, {', '.join(types_now)} now"
    now_at, then_at = ([e for key in common for e in side[key].environments] for side in (found, before))
    for name in dict.fromkeys(name for environment in now_at for name in environment):
        if name not in _MACHINE and (not name.endswith("_version") or name == "dpprof_version"):
            continue
        now = {environment.get(name, "unknown") for environment in now_at}
        then = {environment.get(name, "unknown") for environment in then_at} or {"unknown"}
        if now != then:
            yield f"{name}: {', '.join(sorted(then))} in the baseline, {', '.join(sorted(now))} now"
