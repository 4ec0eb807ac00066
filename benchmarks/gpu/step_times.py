"""The part of a run's page on times: measured steps beside what two tables predict of them."""

import math
import statistics
from collections.abc import Iterator
from typing import Any, NamedTuple

from estimates import estimated
from experiments import Experiment, Plan
from results import Results

from dpprof.config.devices import DEVICES, name_of
from dpprof.vocabulary.formats import markdown_table, number, signed


class Times(NamedTuple):
    """Measured steps of an experiment, and what two tables predict of one: seconds, least and most."""

    name: str
    step_s: list[float]
    phase_s: dict[str, list[float]]
    before: list[float] | None
    after: list[float] | None
    phases: dict[str, list[float]]

    @property
    def seconds(self) -> float:
        """Median of the steps."""
        return statistics.median(self.step_s)

    def off(self, predicted: list[float] | None) -> float | None:
        """Return the error of a prediction, relative to the median; None if there is none."""
        return predicted[0] / self.seconds - 1 if predicted else None

    def holds(self, predicted: list[float] | None) -> bool | None:
        """Tell whether a prediction's range has the median; None without one."""
        return predicted[1] <= self.seconds <= predicted[2] if predicted else None


def times(results: Results, plan: Plan, missed: list[str]) -> Iterator[str]:
    """Yield the lines, and add to `missed` what lies outside of its range."""
    found = list(_predicted(results, plan))
    if not found:
        return
    yield "## Times of steps\n"
    yield "Milliseconds of a clean step: median and interquartile range of ten. Predicted by the tables that"
    yield "come with dpprof, and by the run's own (`calibrated`); `held` tells if the range has the median.\n"
    rows = [
        [
            each.name,
            *(f"{1e3 * value:.2f}" for value in (each.seconds, _spread(each.step_s))),
            *(cell for predicted in (each.before, each.after) for cell in _cells(each, predicted)),
        ]
        for each in found
    ]
    columns = ["experiment", "measured", "IQR"]
    for way in ("predicted", "calibrated"):
        columns += [way, "range", "off %", "held"]
    yield markdown_table(columns, rows, right=1)
    yield from _in_sum(found)
    missed += [
        f"{e.name}: {1e3 * e.seconds:.2f} ms is outside of the calibrated range"
        for e in found
        if e.holds(e.after) is False
    ]
    yield "By phase, predicted by the run's own table, in brackets:\n"
    phases = list(dict.fromkeys(phase for each in found for phase in each.phase_s))
    cells = [[each.name, *(_phase(each, phase) for phase in phases)] for each in found]
    yield markdown_table(["experiment", *phases], cells, right=1)


def _predicted(results: Results, plan: Plan) -> Iterator[Times]:
    """Predict what was measured."""
    steps = results.rows("steps")
    measured = [each for each in plan.times if "error" not in steps.get(each.name, {"error": ""})]
    gpu = name_of(results.about().get("machine", {}).get("gpu", ""))
    before: dict[str, Any] = _estimates(measured, plan.device, gpu if gpu in DEVICES else None)
    after = _estimates(measured, plan.device, str(results.times) if results.times.exists() else None)
    for each in measured:
        row, own = steps[each.name], after.get(each.name, {})
        of_table = before.get(each.name, {}).get("predicted")
        yield Times(
            each.name, row["step_s"], row["phase_s"], of_table, own.get("predicted"), own.get("phases") or {}
        )


def _estimates(measured: list[Experiment], device: str, target: str | None) -> dict[str, Any]:
    return dict(estimated(measured, device, {"target": target})) if target and measured else {}


def _spread(values: list[float]) -> float:
    first, _, third = statistics.quantiles(values, n=4) if len(values) > 1 else (math.nan,) * 3
    return third - first


def _cells(each: Times, predicted: list[float] | None) -> list[str]:
    if predicted is None:
        return [""] * 4
    middle, least, most = (1e3 * value for value in predicted)
    off = each.off(predicted)
    held = "yes" if each.holds(predicted) else "no"
    return [f"{middle:.2f}", f"{least:.2f} to {most:.2f}", signed(100 * (off or 0.0)), held]


def _phase(each: Times, phase: str) -> str:
    if phase not in each.phase_s:
        return ""
    told = number(1e3 * statistics.median(each.phase_s[phase]))
    return f"{told} ({number(1e3 * each.phases[phase][0])})" if phase in each.phases else told


def _in_sum(found: list[Times]) -> Iterator[str]:
    for way in ("predicted", "calibrated"):
        pairs = [(one, one.before if way == "predicted" else one.after) for one in found]
        errors = [100 * off for one, guess in pairs if (off := one.off(guess)) is not None]
        held = [is_held for one, guess in pairs if (is_held := one.holds(guess)) is not None]
        if errors:
            yield (
                f"`{way}`: median error {statistics.median(map(abs, errors)):.1f} %, worst "
                f"{max(errors, key=abs):+.1f} %; {sum(held)} of {len(held)} held.\n"
            )
