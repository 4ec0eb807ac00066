"""The table at the end of a run: at most 40 lines."""

import statistics
from collections.abc import Callable, Iterator
from typing import Any

from experiments import TRAINERS, Experiment, Plan
from results import Results

_WIDTH = 15


def table(results: Results, plan: Plan, estimates: dict[str, dict[str, Any]]) -> Iterator[str]:
    """Yield the lines."""
    about = results.about()
    machine = about.get("machine", {})
    told = [machine.get("gpu", machine.get("cpu", "an unknown machine"))]
    told += [
        f"{name.partition('_')[0]} {machine[name]}"
        for name in ("torch_version", "driver_version")
        if name in machine
    ]
    yield ", ".join(map(str, told))
    for name, stage in about.get("stages", {}).items():
        why = " ".join(stage["why"].split())
        yield f"  {name:<10} {stage['seconds']:>6.1f} s  {why[:90] or 'done'}"
    trainers = [name for name in TRAINERS if any(each.trainer == name for each in plan.memory)]
    heads = "".join(f"{name:>{_WIDTH}}" for name in trainers)
    rows = results.rows("memory")
    yield "memory, % that the estimate is off: allocated / reserved"
    yield f"{'':<20}{heads}"
    of_all = [each for each in plan.memory if each.share is None]
    for label, cells in _grid(of_all):
        yield f"{label:<20}" + "".join(
            f"{_cell(rows, estimates, cells.get(name), _off):>{_WIDTH}}" for name in trainers
        )
    yield from _smallest(rows, plan)
    yield "times, ms of a step: measured (predicted without a table of this GPU)"
    steps = results.rows("steps")
    for label, cells in _grid(plan.times):
        yield f"{label:<20}" + "".join(
            f"{_cell(steps, estimates, cells.get(name), _ms):>{_WIDTH}}" for name in trainers
        )


def _grid(
    experiments: "list[Experiment] | tuple[Experiment, ...]",
) -> Iterator[tuple[str, dict[str, Experiment]]]:
    """Yield each model and precision, with its experiments by trainer."""
    lines: dict[str, dict[str, Experiment]] = {}
    for each in experiments:
        lines.setdefault(f"{each.model} {each.precision}", {})[each.trainer] = each
    yield from lines.items()


def _cell(
    rows: dict[str, Any],
    estimates: dict[str, Any],
    each: Experiment | None,
    tell: Callable[[dict[str, Any], dict[str, Any]], str],
) -> str:
    """Tell of an experiment's row and estimate; of one that failed, its kind of failure."""
    row = rows.get(each.name) if each else None
    if each is None or row is None:
        return ""
    return str(row["kind"]) if "error" in row else tell(row, estimates.get(each.name, {}))


def _off(row: dict[str, Any], estimate: dict[str, Any]) -> str:
    told = [
        f"{100 * (estimate[name] / row[name] - 1):+.2f}"
        for name in ("allocated", "reserved")
        if row.get(name) and estimate.get(name)
    ]
    return " / ".join(told)


def _smallest(rows: dict[str, Any], plan: Plan) -> Iterator[str]:
    """Yield the shares of the estimated smallest device with which each experiment ran."""
    tried: dict[str, list[str]] = {}
    for each in plan.memory:
        if each.share is not None and each.name in rows:
            how = rows[each.name].get("kind", "runs")
            tried.setdefault(each.of_all, []).append(f"{each.share:.2f} {how}")
    if tried:
        yield "shares of the estimated smallest device"
    for name, told in tried.items():
        yield f"  {name:<24}{'  '.join(told)}"


def _ms(row: dict[str, Any], estimate: dict[str, Any]) -> str:
    told = f"{1e3 * statistics.median(row['step_s']):.1f}"
    predicted = estimate.get("predicted")
    return f"{told} ({1e3 * predicted[0]:.1f})" if predicted else told
