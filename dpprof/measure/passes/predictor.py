"""Predicts the time of a step on a device from its operators' sizes and a table of measured times.

An operator takes its serial time (moving its bytes, then computing its FLOPs, at the table's rates) over the
efficiency of the nearest measured sizes of its kind. Kernels overlap the two in part. Yet the sum says better
than the longer of them how products with an inner dimension of 64 compare to those with longer ones, on each
of seven GPUs. What a GPU's last cache still holds moves faster.

Errors are cross-validated: each point is predicted from those further away than some distance, and the 80th
percentile of the errors is the range of a prediction whose nearest point lies that far away. On a GPU the
host issues operators meanwhile (`step_clock.py`); on a CPU that comes on top.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dpprof.config.device_times import ANY_GPU, LIKE, TYPES, DeviceTimes, OperatorTimes
from dpprof.config.devices import DEVICES, name_of
from dpprof.config.issue_times import IssueTimes
from dpprof.measure.passes.machine import issue_s
from dpprof.measure.passes.operator_call import OperatorCall, as_computed, each_gradient, sizes_of
from dpprof.measure.passes.step_clock import StepClock
from dpprof.record.ledger import CollectiveRow, TrafficRow
from dpprof.vocabulary.operator_kinds import (
    BOTH_GRADIENTS,
    CONVOLUTION,
    ENDS,
    PRODUCT,
    STAND_IN,
    kind_of,
)
from dpprof.vocabulary.precision import BF16, FP32, TF32
from dpprof.vocabulary.units import MIB

_NEIGHBOURS = 4
# Share of a table's points whose error a range covers.
_COVERED = 0.8
# Distances, by the logarithms of all sizes together, at which a table's errors are found.
_DISTANCES = [0.0, *(power * math.log(2) for power in (0.5, 1, 2, 4, 8))]
# Relative error assumed for each step from a kind to another one whose times stand in for it.
_OF_STAND_IN = 0.3
# Relative error assumed where times are of another card with the same chip. Products on an A100 of 40 GB and
# on one of 80 GB, both for PCIe, differ by 11 % at the 80th percentile of 3,202, whose data sheets agree.
_OF_CARD = 0.11
# Times that a GPU without matrix units for fp32 reads or writes what a convolution moves, if its tensors have
# their channels last: cuDNN has kernels for the other order alone there, and copies each tensor.
_COPIES = 2
# Rate of a GPU's last cache over its memory's: 2.4 was measured on a V100, 2.2 on a P100, 4.0 on a T4 (Jia et
# al., arXiv:1804.06826 and 1903.07486). An A100's moves 2.5 times as many bytes in a cycle as a V100's (its
# white paper).
_LAST_CACHE = 2.5
# Least time of a kernel on a GPU, assumed where a table has none.
_LAUNCH_S = 3e-6
Floats = npt.NDArray[np.float64]


class CallTime(NamedTuple):
    """Predicted seconds of a call, their relative error, and what they assume, if anything.

    `by_arithmetic` tells if computing its FLOPs takes longer than moving its bytes. Each byte that the last
    cache holds saves `saved_s`, in seconds, but the call takes at least `least_s`.
    """

    seconds: float
    error: float
    assumed: str
    by_arithmetic: bool
    saved_s: float = 0.0
    least_s: float = 0.0

    def with_cached(self, num_bytes: int) -> float:
        """Return the seconds if the last cache holds so many bytes."""
        return max(self.seconds - self.saved_s * num_bytes, min(self.seconds, self.least_s))


class _Kind:
    """Efficiencies of one kind by the logarithms of its sizes.

    Points with no more bytes than the last cache were measured with all of them in it, as each was repeated.
    """

    def __init__(self, times: OperatorTimes, table: DeviceTimes) -> None:
        points = np.array(times.points, dtype=np.float64)
        self._sizes = np.log(points[:, :-3].clip(min=1))
        flop_per_us = 1e6 * table.tflops.get(times.dtype, table.tflops["float32"])
        device = DEVICES.get(name_of(table.gpu))
        is_cached = points[:, -3] <= (device.l2_mib * MIB if device else 0)
        moving_us = points[:, -3] / (1e3 * table.gb_per_s * np.where(is_cached, _LAST_CACHE, 1))
        serial_us = moving_us + points[:, -2] / flop_per_us
        self._efficiency: Floats = np.log(serial_us / points[:, -1])
        self._errors = list(self._left_out())
        self._spread = times.spread

    def at(self, sizes: Sequence[float]) -> tuple[float, float]:
        """Return the efficiency at some sizes, and its relative error."""
        distances = np.abs(self._sizes - np.log(np.maximum(sizes, 1))).sum(1)
        error = next((e for d, e in reversed(self._errors) if d <= distances.min()), self._errors[0][1])
        nearest = np.argsort(distances)[:_NEIGHBOURS]
        found = float(_mean(self._efficiency[nearest], distances[nearest]))
        return math.exp(found), max(error, self._spread)

    def _left_out(self) -> Iterator[tuple[float, float]]:
        """Yield distances and the error of points predicted without all others so near."""
        distances = np.abs(self._sizes[:, None] - self._sizes[None]).sum(2)
        order = np.argsort(distances, axis=1)
        away = np.take_along_axis(distances, order, axis=1)
        error = 0.0
        for least in _DISTANCES:
            first = (away <= least).sum(axis=1)
            known = first < len(away)
            places = np.minimum(first[known, None] + np.arange(_NEIGHBOURS), len(away) - 1)
            nearest = np.take_along_axis(order[known], places, axis=1)
            found = _mean(self._efficiency[nearest], np.take_along_axis(away[known], places, axis=1))
            if known.any():
                off = np.abs(found - self._efficiency[known])
                error = max(error, float(np.quantile(off, _COVERED)))
            yield least, error


def _mean(efficiencies: Floats, distances: Floats) -> Floats:
    """Return the mean over the last dimension; what is a doubling of a size further away counts 1 / e."""
    weights = np.exp((distances.min(-1, keepdims=True) - distances) / math.log(2))
    found: Floats = (weights * efficiencies).sum(-1) / weights.sum(-1)
    return found


class Predictor:
    """Predicts times on one device.

    `times` are its own; what these lack is looked up in those of `others`, similar devices. `tflops` and
    `gb_per_s` are the device's rates if others than its table's; `gpu` is its name in `DEVICES`, if it is
    listed. `source` names the table, `clock` tells when operators run, `known` has the calls so far, and
    `assumed` the seconds that rest on something else, by what that is.
    """

    def __init__(
        self,
        times: DeviceTimes,
        others: Sequence[DeviceTimes] = (),
        tflops: Mapping[str, float] | None = None,
        gb_per_s: float = 0.0,
        gpu: str = "",
    ) -> None:
        self.assumed: dict[str, float] = defaultdict(float)
        self.source = times.gpu
        self._device = DEVICES.get(gpu)
        self._convolves_channels_last = self._device is None or self._device.bf16_tflops is not None
        self._tflops, self._gb_per_s = tflops or times.tflops, gb_per_s or times.gb_per_s
        self._is_gpu = times.device != "cpu"
        self._launch_s = times.launch_us / 1e6 or (_LAUNCH_S if self._is_gpu else 0.0)
        self._issue_s = 0.0 if self._is_gpu else times.issue_us / 1e6 or issue_s()
        self.clock = StepClock(IssueTimes.of(gpu, times.issue_us) if self._is_gpu else None)
        self._tables = {
            (each.kind, each.dtype): (each, table)
            for table in reversed((times, *others))
            for each in table.operators
        }
        self._kinds: dict[tuple[str, str], _Kind] = {}
        self.known: dict[OperatorCall, CallTime] = {}
        self._collectives = [each for table in (times, *others) for each in table.collectives]

    def add(self, call: OperatorCall, row: TrafficRow, cached: int = 0) -> None:
        """Add a call's time to its operator's, and run it by the clock.

        The last cache holds at most `cached` of its bytes; the longest time is that without them. On a CPU,
        what Python and autograd take comes on top.
        """
        if self._is_gpu:
            call = as_computed(call)
        if call not in self.known:
            self.known[call] = self._predict(call)
        found = self.known[call]
        seconds = found.with_cached(cached)
        times = [seconds, seconds * math.exp(-found.error), found.seconds * math.exp(found.error)]
        times = [each + self._issue_s for each in times]
        self.clock.run(row.phase, *times)
        row.predicted_s += times[0]
        row.least_s += times[1]
        row.most_s += times[2]
        row.arithmetic_s += found.by_arithmetic * times[0]
        if found.assumed:
            self.assumed[found.assumed] += seconds

    def add_collective(self, num_bytes: int, ranks: int, row: CollectiveRow) -> None:
        """Add a collective's time on the nearest number of ranks that was measured, if any was.

        It lies on the lines between measured sizes, and beyond these grows in proportion.
        """
        found = [each for each in self._collectives if each.name == row.name]
        if found:
            nearest = min(found, key=lambda each: abs(math.log(each.ranks / ranks)))
            sizes, us = np.array(sorted(nearest.points)).T
            found_us = np.interp(num_bytes, sizes, us) * max(1.0, num_bytes / sizes[-1])
            row.predicted_s = (row.predicted_s or 0.0) + float(found_us) / 1e6

    def _types(self, kind: str, asked: str) -> list[str]:
        """Return the types whose times count for a kind, the first one with the rate of its FLOPs.

        Without a table in TF32 a product is as efficient as one in bf16, if its rate is known to be above
        that of fp32. A convolution, which torch does in TF32 unasked, counts as one in fp32.
        """
        if asked != TYPES[TF32] or (kind, asked) in self._tables:
            return [asked, TYPES[FP32]]
        is_faster = self._tflops.get(asked, 0.0) > self._tflops[TYPES[FP32]]
        if kind == PRODUCT and is_faster and (kind, TYPES[BF16]) in self._tables:
            return [asked, TYPES[BF16], TYPES[FP32]]
        return [TYPES[FP32], TYPES[FP32]]

    def _predict(self, call: OperatorCall) -> CallTime:
        """Predict a call alone. A convolution's backward is two kernels, if these have times of their own."""
        kind, asked = kind_of(call.name, call.is_dense), call.dtype or TYPES[FP32]
        if kind == BOTH_GRADIENTS and (kind, asked) not in self._tables:
            ends = [CONVOLUTION + end for end in ENDS.values()]
            if all((end, asked) in self._tables for end in ends):
                return _in_turn([self._predict(each) for each in each_gradient(call)])
        dtype, *others = self._types(kind, asked)
        flop_per_s = 1e12 * self._tflops.get(dtype, self._tflops["float32"])
        moving, computing = call.num_bytes / (1e9 * self._gb_per_s), call.flops / flop_per_s
        serial, by_arithmetic = moving + computing, computing > moving
        used, error = kind, _OF_STAND_IN if len(others) > 1 else 0.0
        while not (known := [d for d in (dtype, *others) if (used, d) in self._tables]):
            if used not in STAND_IN:
                return CallTime(serial, 2 * _OF_STAND_IN, f"{kind} by bytes and FLOPs", by_arithmetic)
            used, error = STAND_IN[used], error + _OF_STAND_IN
        key = used, known[0]
        entry, table = self._tables[key]
        if key not in self._kinds:
            self._kinds[key] = _Kind(entry, table)
        try:
            sizes = sizes_of(call, used)
        except (ValueError, IndexError, ZeroDivisionError):  # a form that is not known
            return CallTime(serial, 2 * _OF_STAND_IN, f"{kind} by bytes and FLOPs", by_arithmetic)
        efficiency, own_error = self._kinds[key].at(sizes)
        as_what = [used] * (used != kind) + [f"in {known[0]}"] * (known[0] != asked)
        as_what += [f"on {table.gpu}"] * (table.gpu != self.source or table.gpu == ANY_GPU)
        assumed = f"{kind} as {' '.join(as_what)}" if as_what else ""
        on_top = 0.0
        if kind.startswith(CONVOLUTION) and not call.is_dense and not self._convolves_channels_last:
            copies = call._replace(name="aten::clone", num_bytes=_COPIES * call.num_bytes, flops=0)
            on_top = self._predict(copies).seconds
        if self._device is not None and table.gpu != ANY_GPU and not self._device.is_named(table.gpu):
            error += _OF_CARD
        seconds = max(serial / efficiency, self._launch_s) + on_top
        saved_s = (1 - 1 / _LAST_CACHE) / (1e9 * self._gb_per_s) / efficiency if self._is_gpu else 0.0
        return CallTime(seconds, error + own_error, assumed, by_arithmetic, saved_s, self._launch_s + on_top)


def _in_turn(times: list[CallTime]) -> CallTime:
    """Return the time of calls one after the other."""
    seconds = sum(each.seconds for each in times)
    error = sum(each.error * each.seconds for each in times) / seconds
    assumed = next((each.assumed for each in times if each.assumed), "")
    by_arithmetic = any(each.by_arithmetic for each in times)
    saved_s, least_s = min(each.saved_s for each in times), sum(each.least_s for each in times)
    return CallTime(seconds, error, assumed, by_arithmetic, saved_s, least_s)


def predictor_of(target: str) -> Predictor | None:
    """Return the predictor of a listed GPU or of a file of `dpprof calibrate`; None without a target.

    A GPU without a table has the times of any GPU, by its own rates. Where the table is of another card with
    the same chip, products are as fast as on that card: power limits decide that, and not data sheets.
    """
    if target == "none":
        return None
    like = [DeviceTimes.shipped(name) for name in (target, *LIKE.get(target, ()), ANY_GPU)]
    others = [times for times in like if times is not None]
    device = DEVICES.get(target)
    if device is None:
        times = DeviceTimes.read(Path(target))
        return Predictor(times, others if times.device == "cuda" else (), gpu=name_of(times.gpu))
    rates = {"float32": device.fp32_tflops, "bfloat16": device.bf16_tflops or device.fp32_tflops}
    if device.tf32_tflops:
        rates[TYPES[TF32]] = device.tf32_tflops
    if others[0].gpu != ANY_GPU:
        rates |= others[0].tflops
    return Predictor(others[0], others[1:], rates, device.bandwidth_gb_per_s, target)
