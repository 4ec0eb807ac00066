"""A measured run beside what a plan said of it."""

import dataclasses
import statistics
from collections.abc import Iterator
from dataclasses import dataclass

from dpprof.config.devices import DEVICES
from dpprof.figures.metric import Metric
from dpprof.record.predicted import Predicted
from dpprof.record.record import Record
from dpprof.vocabulary.formats import number
from dpprof.vocabulary.units import mib, ms


@dataclass(frozen=True)
class Beside:
    """A figure of a plan, what was measured, and how far that is off, in words."""

    name: str
    planned: str
    measured: str
    off: str


def plan_metrics(predicted: Predicted) -> Iterator[Metric]:
    """What a plan said."""
    least, most = predicted.step_s_least, predicted.step_s_most
    yield Metric("plan", "peak_mib", None if predicted.peak_bytes is None else mib(predicted.peak_bytes))
    yield Metric("plan", "step_ms_least", None if least is None else ms(least))
    yield Metric("plan", "step_ms_most", None if most is None else ms(most))


def beside(predicted: Predicted, record: Record) -> list[Beside]:
    """The figures that a plan gave and a run measured."""
    found = []
    peak = record.memory.peak_allocated
    if predicted.peak_bytes is not None and peak is not None:
        off = f"{peak - predicted.peak_bytes:+,} bytes"
        found.append(Beside("peak", f"{predicted.peak_bytes:,} bytes", f"{peak:,} bytes", off))
    if predicted.step_s_least is not None and record.step_s:
        step = _step(predicted.step_s_least, predicted.step_s_most, statistics.median(record.step_s))
        device, gpu = DEVICES.get(predicted.target), record.environment.get("gpu", "")
        if device is not None and not device.is_named(gpu):
            step = dataclasses.replace(step, off=f"not compared: the plan is for {predicted.target}")
        found.append(step)
    return found


def _step(least: float, most: float | None, measured: float) -> Beside:
    if most is None:
        planned, off = f"{number(least)} s or more", f"{measured / least:.2f} times the least"
    elif least == most:
        planned, off = f"{number(least)} s", f"{100 * (measured / least - 1):+.1f} %"
    else:
        planned = f"{number(least)} to {number(most)} s"
        nearest = min(max(measured, least), most)
        off = "within" if nearest == measured else f"{100 * (measured / nearest - 1):+.1f} %"
    return Beside("step", planned, f"{number(measured)} s", off)
