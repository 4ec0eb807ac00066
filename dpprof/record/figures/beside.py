"""Compare a measured run with the plan it was made for."""

import statistics
from typing import NamedTuple

from dpprof.config.devices import DEVICES
from dpprof.record.record import Predicted, Record
from dpprof.vocabulary.formats import number


class Beside(NamedTuple):
    """A planned figure, the measured one and the deviation, as text."""

    name: str
    planned: str
    measured: str
    off: str


def beside(predicted: Predicted, record: Record) -> list[Beside]:
    """Return the figures that the plan predicted and the run measured."""
    found = []
    peak = record.memory.peak_allocated
    if predicted.peak_bytes is not None and peak is not None:
        off = f"{peak - predicted.peak_bytes:+,} bytes"
        found.append(Beside("peak", f"{predicted.peak_bytes:,} bytes", f"{peak:,} bytes", off))
    if predicted.step_s_least is not None and record.step_s:
        step = _step(predicted.step_s_least, predicted.step_s_most, statistics.median(record.step_s))
        device, gpu = DEVICES.get(predicted.target), record.environment.get("gpu", "")
        if device is not None and not device.is_named(gpu):
            step = step._replace(off=f"not compared: the plan is for {predicted.target}")
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
