"""What got worse since a baseline: memory compared exactly, step time with its spread."""

from collections.abc import Iterator
from dataclasses import dataclass

from dpprof.errors import ConfigError
from dpprof.figures.names import PEAK, STEP
from dpprof.reports.comparison.cell import Cell
from dpprof.reports.comparison.comparison import Comparison
from dpprof.reports.comparison.failures import reason
from dpprof.reports.comparison.intervals import pace_ratio, step_ratio

# Of this interval each bound holds with 95 % confidence.
_CONFIDENCE = 0.90
# Versions and hardware on which a time depends, and torch's memory too.
_MACHINE = ("cpu", "cpu_cores", "gpu", "torch_threads")


@dataclass(frozen=True)
class Change:
    """One figure of one cell, before and now. `unit` is `MiB`, `ms`, or empty for how the experiment ended.

    `percent` is the change. Where the figure has a spread `interval` holds its 90 % confidence interval: the
    change is at least the lower bound with 95 % confidence.
    """

    cell: str
    what: str
    unit: str
    before: float | None
    now: float | None
    percent: float | None
    interval: tuple[float, float] | None
    is_worse: bool
    note: str = ""


@dataclass(frozen=True)
class Check:
    """A comparison with a baseline. `unmatched` names cells that only one side has."""

    fail_above_pct: float
    changes: list[Change]
    unmatched: list[str]
    doubts: list[str]

    @property
    def worse(self) -> list[Change]:
        """What got worse beyond the limit."""
        return [change for change in self.changes if change.is_worse]


def check(now: Comparison, baseline: Comparison, fail_above_pct: float) -> Check:
    """Compare the cells that have equal settings (apart from how they were measured) on both sides.

    The peak is worse if it grew by more than the limit. The step time is worse if it did with 95 %
    confidence: a growth that noise explains does not count. It is taken in times the fixed computation where
    both sides have a pace pass, which leaves out how fast the machine was. Where a side has but one run of a
    cell, or no pace pass and only disturbed runs, its time is not judged, nor is a peak that one side did not
    measure. An experiment is worse too if a run of it failed, or a later pass of a run.

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
    """The cells by what they measure; of several sources the runs are taken together."""
    found: dict[object, Cell] = {}
    for cell in comparison.cells:
        key = cell.experiment
        if key in found:
            cell = Cell(cell.source, cell.settings, [*found[key].runs, *cell.runs])
        found[key] = cell
    return found


def _name(cell: Cell) -> str:
    return cell.runs[0].name


def _changes(now: Cell, before: Cell, limit: float) -> Iterator[Change]:
    name = _name(now)
    if not before.finished:
        yield Change(
            name, "status", "", None, None, None, None, False, f"was {before.failure} in the baseline"
        )
        return
    failed = next((run for run in now.runs if run.failure or run.failed_passes), None)
    if failed is not None:
        note = f"{failed.failure or 'later pass'}: {reason(failed)}".rstrip(": ")
        yield Change(name, "status", "", None, None, None, None, True, note)
    if not now.finished:
        return
    yield _peak(name, now, before, limit)
    if STEP in now.figures and STEP in before.figures:
        yield _time(name, now, before, limit)


def _peak(name: str, now: Cell, before: Cell, limit: float) -> Change:
    peak, peak_before = now.figures.get(PEAK), before.figures.get(PEAK)
    if peak is None or peak_before is None:
        note = (
            f"not judged: not measured {'now' if peak is None else 'in the baseline'} (passes=clean,memory)"
        )
        return Change(name, "peak memory", "MiB", peak_before, peak, None, None, False, note)
    percent = 100 * (peak / peak_before - 1)
    return Change(name, "peak memory", "MiB", peak_before, peak, percent, None, percent > limit)


def _time(name: str, now: Cell, before: Cell, limit: float) -> Change:
    figures = (before.figures[STEP], now.figures[STEP])
    ratio = pace_ratio(now, before, _CONFIDENCE)
    notes = []
    if ratio is None:
        ratio = step_ratio(now, before, _CONFIDENCE)
        notes.append("no pace pass on both sides: includes how fast the machine was")
    if ratio is None:
        percent = 100 * (figures[1] / figures[0] - 1)
        note = "not judged: too few timed steps to tell the spread"
        if now.is_disturbed or before.is_disturbed:
            note = "not judged: the machine was disturbed, and there is no pace pass on both sides"
        return Change(name, "step time", "ms", *figures, percent, None, False, note)
    if not ratio.between_runs:
        notes.append("not judged: one run, so that what differs between processes is not known (repeats=3)")
    low, high = 100 * (ratio.low - 1), 100 * (ratio.high - 1)
    is_worse = ratio.between_runs and low > limit
    percent = 100 * (ratio.value - 1)
    return Change(name, "step time", "ms", *figures, percent, (low, high), is_worse, "; ".join(notes))


def _doubts(found: dict[object, Cell], before: dict[object, Cell], common: list[object]) -> Iterator[str]:
    """What else differs between the two sides, so that a change may not be the code's."""
    now_at = [environment for key in common for environment in found[key].environments]
    then_at = [environment for key in common for environment in before[key].environments]
    names = dict.fromkeys(
        name
        for environment in now_at
        for name in environment
        if name in _MACHINE or name.endswith("_version")
    )
    for name in names:
        now = {environment.get(name, "unknown") for environment in now_at}
        then = {environment.get(name, "unknown") for environment in then_at} or {"unknown"}
        if now != then and name != "dpprof_version":
            yield f"{name}: {', '.join(sorted(then))} in the baseline, {', '.join(sorted(now))} now"
