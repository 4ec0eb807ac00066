"""The ledger of an estimate, which also counts what operators use internally, where that is known.

On the CPU each operator runs once for real for each set of shapes, on zeros, and the allocator's events show
its memory: oneDNN reorders the inputs of a convolution, its LSTM keeps a workspace for backward, and other
operators copy what is not contiguous. The answer holds for this machine's processor, number of threads and
libraries. On CUDA nothing is tried. What kernels take follows from the shapes, and what the allocator adds
from a simulation of it; the memory that cuDNN may take beyond that becomes a doubt, based on deliberately
high assumptions.
"""

import itertools
import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from typing import Any, Self
from unittest.mock import patch

import torch
from torch import Tensor
from torch.nn.modules.rnn import _rnn_impls
from torch.profiler import ProfilerActivity, profile
from torch.utils._pytree import tree_flatten, tree_map_only, tree_unflatten

from dpprof.config.devices import DEVICES, WORKSPACE_MIB, Device
from dpprof.measure.passes.account import Account
from dpprof.measure.passes.device_memory import AllocatedSteps
from dpprof.measure.passes.events import own_allocations
from dpprof.measure.passes.kernel_scratch import (
    attention_scratch,
    convolution_scratch,
    may_take_scratch,
    scratch_bytes,
)
from dpprof.measure.passes.ledger import Kept, Ledger
from dpprof.measure.passes.predictor import Predictor
from dpprof.measure.passes.traffic import PRODUCTS, flops, footprint, makes_nothing, tensors_in
from dpprof.record.folder import RunFolder
from dpprof.record.ledger import Doubt, Segments
from dpprof.record.record import Record
from dpprof.vocabulary.units import MIB

_aten = torch.ops.aten
_CONVOLUTIONS = {_aten.convolution, _aten.convolution_backward}
# The CPU's stands for CUDA's where torch has none.
_ATTENTION_BACKWARD = {
    _aten._scaled_dot_product_flash_attention_for_cpu_backward,
    _aten._scaled_dot_product_flash_attention_backward,
    _aten._scaled_dot_product_cudnn_attention_backward,
    _aten._scaled_dot_product_efficient_attention_backward,
}
# Collectives, which one rank alone cannot try.
_OF_RANKS = ("c10d", "_c10d_functional")
# Assumed limit of a workspace, as a multiple of the operator's tensors. Winograd's transform of 6 x 6 tiles
# for 4 x 4 results takes 36 / 16 times the input and the output and 36 / 9 times the weight of a convolution
# (Lavin and Gray 2016, F(4 x 4, 3 x 3)); cuDNN does not promise to stay below that.
_WORKSPACES = 4
# cuDNN's tiled FFT convolution (FFT_TILING), which its benchmark mode may choose: a tile of 32 x 32 numbers
# becomes 32 x 17 complex fp32 ones, for every image and channel of input and output and every filter.
_TILE, _TILE_BYTES = 32, 32 * 17 * 8
# Assumed limit of what a recurrent layer keeps for backward, in values for each time step, sample and hidden
# unit: four gates, the cell and its tanh, twice over.
_KEPT_VALUES = 12
_ASSUMED = {
    "cudnn_convolution_workspace": (
        "cuDNN chooses a workspace for each convolution: in the estimate it is a copy of the tensors, on "
        f"GPUs with bf16 matrix units; assumed to be no more than {_WORKSPACES} times these, or the Fourier "
        "transforms of their tiles"
    ),
    "untried_convolutions": (
        "a convolution was not run alone, being too large: what it takes within itself is assumed to be no "
        f"more than {_WORKSPACES} times its tensors"
    ),
    "untried_operators": (
        "an operator was not run alone, being too large or unfit for a trial: what it takes within itself is "
        "assumed to be no more than its tensors"
    ),
    "untried_recurrent_layers": (
        "a recurrent layer was too large to be run: what it keeps for backward is not in it"
    ),
    "cudnn_recurrent_layers": (
        "what cuDNN keeps of recurrent layers for backward is not in it: assumed to be no more than "
        f"{_KEPT_VALUES} values for each time step, sample and hidden unit"
    ),
}
_RECURRENT_FUNCTIONS = ("lstm", "gru", "rnn_tanh", "rnn_relu")
_GROWING = (
    "the step leaves more alive than it found: if every step does, later ones need more than is estimated"
)
# Limits of a trial, which takes real memory and time.
_LARGEST_BYTES = 2**30
_MOST_FLOPS = 10**11


@dataclass(frozen=True)
class Layout:
    """Layout of a tensor, to make another one from; `num_elements` are those of its storage."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    num_elements: int

    @classmethod
    def of_argument(cls, tensor: Tensor) -> "Layout":
        """Return the layout of a strided tensor, without the unused rest of its storage."""
        shape, stride = tuple(tensor.shape), tuple(tensor.stride())
        last = sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
        return cls(shape, stride, tensor.dtype, 0 if 0 in shape else last + 1)

    @classmethod
    def of_result(cls, tensor: Tensor) -> "Layout":
        """Return the layout of a strided tensor over the whole of its storage."""
        num_elements = tensor.untyped_storage().nbytes() // tensor.element_size()
        return cls(tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype, num_elements)

    def zeros(self) -> Tensor:
        """Return a CPU tensor of zeros with this layout, including elements that share memory."""
        storage = torch.zeros(self.num_elements, dtype=self.dtype, device="cpu")
        return storage.as_strided(self.shape, self.stride)


@dataclass(frozen=True)
class OperatorTrial:
    """Peak bytes of an operator call (results included), bytes left, and layouts (None: no tensor)."""

    peak: int
    left: int
    results: list[Layout | None]


class OperatorTrials:
    """Tries each operator once for all calls with the same layouts.

    It does so in a thread of its own, without dispatch modes, functorch transforms or autocast.
    """

    def __init__(self) -> None:
        self._known: dict[object, OperatorTrial | None] = {}
        self._thread = ThreadPoolExecutor(max_workers=1)

    def of(
        self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, num_flops: int
    ) -> OperatorTrial | None:
        """Return the trial of a call; None if it is too large, takes sparse tensors, or fails on zeros."""
        tensors = list(tensors_in((*args, *kwargs.values())))
        if any(tensor.layout is not torch.strided for tensor in tensors):
            return None
        forms = tree_map_only(Tensor, Layout.of_argument, (args, kwargs))
        leaves, spec = tree_flatten(forms)
        key = (operator, str(spec), *(x if isinstance(x, Layout) else (type(x), repr(x)) for x in leaves))
        if key not in self._known:
            num_bytes = sum(footprint(tensor) for tensor in (*tensors, *tensors_in((result,))))
            too_large = num_bytes > _LARGEST_BYTES or num_flops > _MOST_FLOPS
            self._known[key] = None if too_large else self._thread.submit(_tried, operator, *forms).result()
        return self._known[key]


def _tried(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> OperatorTrial | None:
    real_args, real_kwargs = tree_map_only(Layout, Layout.zeros, (args, kwargs))
    try:
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
            result = operator(*real_args, **real_kwargs)
    except (RuntimeError, ValueError, IndexError):
        return None  # zeros do not suit every operator: a singular matrix, or no probabilities
    events = own_allocations(profiler)
    levels = [0, *itertools.accumulate(event.num_bytes for event in events)]
    results = [Layout.of_result(x) if isinstance(x, Tensor) else None for x in tree_flatten(result)[0]]
    return OperatorTrial(max(levels), max(levels[-1], 0), results)


class EstimateLedger(Ledger):
    """A ledger that also knows how far the peak may exceed the bytes it counted."""

    def __init__(self, device_type: str, l2_bytes: int = 0, predictor: Predictor | None = None) -> None:
        super().__init__(device_type, l2_bytes, predictor)
        self._highest: dict[str, int] = {}
        # Bytes on top of any peak, None where nothing bounds them.
        self._on_top: dict[str, int | None] = {}

    def _assume_workspace(
        self, name: str, times: int, args: tuple[Any, ...], result: Any, at_least: int = 0
    ) -> None:
        """Note the level reached if an operator takes `times` its tensors, and at least `at_least` bytes."""
        made = sum(footprint(tensor) for tensor in tensors_in((result,)))
        given = sum(footprint(tensor) for tensor in tensors_in(args))
        level = self.storages.live_bytes() + made + max(times * (given + made), at_least)
        self._highest[name] = max(level, self._highest.get(name, 0))

    def segments(self, account: Account) -> Segments | None:
        """Return what the allocator takes of the device for the steps up to this one, where computed."""
        return None

    def doubts(self, peak: int) -> Iterator[Doubt]:
        """Yield what the estimate cannot see, and how many bytes it may add to the peak."""
        for name, level in self._highest.items():
            yield Doubt(name, _ASSUMED[name], max(0, level - peak))
        for name, num_bytes in self._on_top.items():
            yield Doubt(name, _ASSUMED[name], num_bytes)


class CpuLedger(EstimateLedger):
    """For fake tensors on the CPU. Runs each operator once for real to see how much memory it takes."""

    def __init__(self, predictor: Predictor | None = None) -> None:
        super().__init__("cpu", predictor=predictor)
        self._trials = OperatorTrials()

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operator on fake tensors; its results get the sizes of real ones."""
        result = super().call(func, args, kwargs)
        strided = [t for t in tensors_in((*args, *kwargs.values())) if t.layout is torch.strided]
        given = {tensor.untyped_storage()._cdata for tensor in strided}
        # A trial on zeros would show other sizes than data does.
        is_tried = torch.Tag.dynamic_output_shape not in func.tags and func.namespace not in _OF_RANKS
        if not is_tried or makes_nothing(func) or not given:
            return result
        trial = self._trials.of(func, args, kwargs, result, flops(func, args, kwargs, result))
        if trial is None:
            if func._overloadpacket in _CONVOLUTIONS:
                self._assume_workspace("untried_convolutions", _WORKSPACES, args, result)
            else:
                self._assume_workspace("untried_operators", 1, args, result)
            if func._overloadpacket is _aten.mkldnn_rnn_layer:
                self._on_top["untried_recurrent_layers"] = None
            return result
        if trial.peak > trial.left:
            self.storages.take_for_a_moment([trial.peak], func._schema.name, self.modules.current())
        leaves, spec = tree_flatten(result)
        pairs = zip(leaves, trial.results, strict=True)
        return tree_unflatten([_as_real(leaf, layout, given) for leaf, layout in pairs], spec)


def _as_real(leaf: Any, layout: Layout | None, given: set[int]) -> Any:
    """Return the fake result, or one with the real layout if the real storage has another size."""
    if not isinstance(leaf, Tensor) or layout is None or leaf.untyped_storage()._cdata in given:
        return leaf
    same_size = leaf.untyped_storage().nbytes() == layout.num_elements * layout.dtype.itemsize
    return leaf if same_size else layout.zeros()


class CudaLedger(EstimateLedger):
    """For fake tensors on CUDA, or on the CPU in place of CUDA."""

    def __init__(
        self, device_type: str, device: Device | None = None, predictor: Predictor | None = None
    ) -> None:
        super().__init__(device_type, device.l2_mib * MIB if device else 0, predictor)
        self._processors = (device or DEVICES["A100-80GB"]).processors
        self._workspace = round((device.workspace_mib if device else WORKSPACE_MIB) * MIB)
        self._is_hopper = device is not None and device.is_hopper
        self._has_matrix_units = device is None or device.bf16_tflops is not None
        self._has_workspace: set[bool] = set()
        self._recurrent = _RecurrentCalls()

    def __enter__(self) -> Self:
        super().__enter__()
        self._entered.enter_context(self._recurrent)
        if self.predictor is not None:
            wait = self.predictor.clock.wait
            self._entered.enter_context(patch.object(torch.cuda, "synchronize", lambda device=None: wait()))
        return self

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operator, and note the memory that cuDNN may take for it."""
        result = super().call(func, args, kwargs)
        if _may_take_memory(func):
            self._take_beside(func, args, result)
        if self.storages.phase != "forward" and (kept := self._recurrent.take()):
            name = "cudnn_recurrent_layers"
            self._on_top[name] = max(kept, self._on_top.get(name) or 0)
        return result

    def _take_beside(self, func: Any, args: tuple[Any, ...], result: Any) -> None:
        """Take the memory that an operator's kernel takes beside its tensors."""
        packet = func._overloadpacket
        if packet in PRODUCTS:
            # Handles of cuBLAS, and so their workspaces, belong to threads: autograd has one of its own.
            in_autograd = torch._C._current_graph_task_id() != -1
            if in_autograd not in self._has_workspace:
                self._has_workspace.add(in_autograd)
                self._see(func, result)
                self.storages.take_for_good(self._workspace)
        moments = [scratch_bytes(func, args, self._processors)]
        if packet in _ATTENTION_BACKWARD:
            moments = attention_scratch(args[1], is_hopper=self._is_hopper)
        elif packet in _CONVOLUTIONS and self._has_matrix_units:
            moments = convolution_scratch(func, args, result, is_hopper=self._is_hopper)
        for sizes in moments:
            if sizes:
                self._see(func, result)
                self.storages.take_for_a_moment(sizes, func._schema.name, self.modules.current())
        if packet in _CONVOLUTIONS:
            transformed = _transformed_bytes(
                *(args[:3] if isinstance(result, tuple) else (result, *args[:2]))
            )
            self._assume_workspace("cudnn_convolution_workspace", _WORKSPACES, args, result, transformed)

    def _see(self, func: Any, result: Any) -> None:
        """See an operator's results before the memory that it takes beside them."""
        for tensor in tensors_in((result,)):
            self.storages.see(tensor, func._schema.name, self.modules.current)

    def from_allocator(self, account: Account) -> dict[str, int]:
        """Return what cuBLAS takes from the allocator, and what blocks are larger than asked for."""
        workspaces = len(self._has_workspace) * self._workspace
        in_blocks = self._steps(account).on_device().allocated
        return {"block_rounding": in_blocks - workspaces - account.peak, "cublas_workspace": workspaces}

    def segments(self, account: Account) -> Segments | None:
        """Return what the allocator takes of the device, by a simulation of all storages so far."""
        return self._steps(account).segments()

    def _steps(self, account: Account) -> AllocatedSteps:
        log = account.log
        return AllocatedSteps(self.storages.changes[: log.end_change], log.first_change)


@cache
def _may_take_memory(func: Any) -> bool:
    """Tell if an operator's kernel may take memory beside its tensors on CUDA."""
    packet = func._overloadpacket
    kinds = PRODUCTS, _ATTENTION_BACKWARD, _CONVOLUTIONS
    return may_take_scratch(func) or any(packet in kind for kind in kinds)


def note_estimate(kept: Kept, record: Record, folder: RunFolder, *, may_grow: bool = True) -> None:
    """Add the estimate of a step to a record; growth is in doubt if steps are alike."""
    record.ledger = kept.result
    if kept.times_of:
        record.environment["times_of"] = kept.times_of
    if may_grow and record.ledger.growth > 0:
        record.ledger.doubts.append(Doubt("growing_state", _GROWING, None))
    record.memory.peak_allocated = record.ledger.peak + sum(record.ledger.from_allocator.values())
    if record.ledger.segments is not None:
        record.memory.peak_reserved = record.ledger.segments.reserved
    folder.write_ledger(record.ledger, kept.account.timeline())


def _transformed_bytes(outputs: Tensor, inputs: Tensor, weight: Tensor) -> int:
    """Return the bytes of the Fourier transforms of a convolution's tiles.

    0 if the filter exceeds a tile or is a single point. Tiles overlap by a filter's size less one. Shapes:
    (B, channels, *positions) for outputs and inputs, (out, in / groups, *sizes) for the weight.
    """
    sizes = weight.shape[2:]
    if not 1 < max(sizes) <= _TILE:
        return 0
    positions = [max(pair) for pair in zip(outputs.shape[2:], inputs.shape[2:], strict=True)]
    tiles = math.prod(positions[:-2])  # of three dimensions, two are tiled
    for length, size in zip(positions[-2:], sizes[-2:], strict=True):
        tiles *= math.ceil(length / (_TILE - size + 1))
    images = inputs.shape[0] * (inputs.shape[1] + outputs.shape[1])
    return _TILE_BYTES * (images * tiles + weight.shape[0] * weight.shape[1])


class _RecurrentCalls(ExitStack):
    """While entered, adds up the bytes that recurrent functions may keep for backward in forward."""

    def __init__(self) -> None:
        super().__init__()
        self._num_bytes = 0

    def __enter__(self) -> Self:
        counted: dict[str, Any] = {name: self._counted(getattr(torch, name)) for name in _RECURRENT_FUNCTIONS}
        self.enter_context(patch.multiple(torch._VF, **counted))
        self.enter_context(patch.dict(_rnn_impls, {name: counted[name.lower()] for name in _rnn_impls}))
        return self

    def take(self) -> int:
        taken, self._num_bytes = self._num_bytes, 0
        return taken

    def _counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any) -> Any:
            sequence = args[0]
            # After the input, or its parts and their sizes, comes the hidden state: (layers, ..., hidden).
            hidden = next(t for t in tensors_in(args[1:]) if t.is_floating_point())
            num_steps = sequence.numel() // sequence.shape[-1]
            values = num_steps * hidden.shape[0] * hidden.shape[-1] * _KEPT_VALUES
            self._num_bytes += values * sequence.element_size()
            return function(*args)

        return called
