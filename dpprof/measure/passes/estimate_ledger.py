"""The ledger of an estimate: it also counts what operators use internally, where that can be known.

For the CPU each operator is tried once (`trial.py`), and the memory that it took is counted. For CUDA nothing
can be tried: what cuDNN may take becomes a doubt, whose size rests on deliberately high assumptions.
"""

from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn.modules.rnn import _rnn_impls
from torch.utils._pytree import tree_flatten, tree_unflatten

from dpprof.measure.passes.ledger import Ledger
from dpprof.measure.passes.traffic import flops, footprint, makes_nothing, tensors_in
from dpprof.measure.passes.trial import Layout, Trials
from dpprof.record.ledger import Doubt

_aten = torch.ops.aten
_CONVOLUTIONS = {_aten.convolution, _aten.convolution_backward}
# Operators between ranks: one rank alone cannot try them.
_OF_RANKS = ("c10d", "_c10d_functional")
# A workspace is assumed to be no more than this many times the operator's tensors. Winograd's transform of
# 6 x 6 tiles for 4 x 4 results takes 36 / 16 times the input and the output and 36 / 9 times the weight of a
# convolution (Lavin and Gray 2016, F(4 x 4, 3 x 3)); nothing in cuDNN promises to stay below that.
_WORKSPACES = 4
# What a recurrent layer keeps for backward is assumed to be no more than this many values for each time step,
# sample and hidden unit: four gates, the cell and its tanh, twice over.
_KEPT_VALUES = 12
_ASSUMED = {
    "cudnn_convolution_workspace": (
        "cuDNN's workspaces are not in it, which its heuristics choose for each convolution: assumed to be "
        f"no more than {_WORKSPACES} times the convolution's tensors"
    ),
    "untried_convolutions": (
        "a convolution was not run alone, being too large: what it takes within itself is assumed to be no "
        f"more than {_WORKSPACES} times its tensors"
    ),
    "untried_operators": (
        "an operator was not run alone, being too large or unfit for a trial: what it takes within itself is "
        "assumed to be no more than its tensors"
    ),
}
_RECURRENT_FUNCTIONS = ("lstm", "gru", "rnn_tanh", "rnn_relu")


class EstimateLedger(Ledger):
    """A ledger that also knows how much higher the peak may be than the bytes it counted."""

    def __init__(self, device_type: str) -> None:
        super().__init__(device_type)
        self._highest: dict[str, int] = {}

    def _assume_workspace(self, name: str, times: int, args: tuple[Any, ...], result: Any) -> None:
        """Assume that the running operator takes a multiple of its tensors, and note the level it reaches."""
        made = sum(footprint(tensor) for tensor in tensors_in((result,)))
        given = sum(footprint(tensor) for tensor in tensors_in(args))
        level = self.storages.live_bytes() + made + times * (given + made)
        self._highest[name] = max(level, self._highest.get(name, 0))

    def doubts(self, peak: int) -> Iterator[Doubt]:
        """What the estimate cannot see, and how much it may add to the peak."""
        for name, level in self._highest.items():
            yield Doubt(name, _ASSUMED[name], max(0, level - peak))


class CpuLedger(EstimateLedger):
    """For fake tensors on the CPU. Each operator runs once for real, which shows how much memory it takes."""

    def __init__(self) -> None:
        super().__init__("cpu")
        self._trials = Trials()
        self._has_untried_layer = False

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operator on fake tensors; its results get the sizes of real ones."""
        result = super().call(func, args, kwargs)
        given = {t.untyped_storage()._cdata for t in tensors_in((*args, *kwargs.values())) if _has_storage(t)}
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
            self._has_untried_layer |= func._overloadpacket is _aten.mkldnn_rnn_layer
            return result
        if trial.peak > trial.left:
            self.storages.take_for_a_moment(trial.peak, func._schema.name, self.modules.current())
        leaves, spec = tree_flatten(result)
        pairs = zip(leaves, trial.results, strict=True)
        return tree_unflatten([_as_real(leaf, layout, given) for leaf, layout in pairs], spec)

    def doubts(self, peak: int) -> Iterator[Doubt]:
        """The memory of operators that are too large to try."""
        yield from super().doubts(peak)
        if self._has_untried_layer:
            yield Doubt(
                "untried_recurrent_layers",
                "a recurrent layer was too large to be run: what it keeps for backward is not in it",
                None,
            )


def _has_storage(tensor: Tensor) -> bool:
    return tensor.layout is torch.strided


def _as_real(leaf: Any, layout: Layout | None, given: set[int]) -> Any:
    """The fake result, or one with the real layout if the real storage has another size."""
    if not isinstance(leaf, Tensor) or layout is None or leaf.untyped_storage()._cdata in given:
        return leaf
    same_size = leaf.untyped_storage().nbytes() == layout.num_elements * layout.dtype.itemsize
    return leaf if same_size else layout.zeros()


class CudaLedger(EstimateLedger):
    """For fake tensors on CUDA, or on the CPU in place of CUDA."""

    def __init__(self, device_type: str) -> None:
        super().__init__(device_type)
        self._recurrent = _RecurrentCalls()
        self._kept = 0

    def __enter__(self) -> Self:
        self._recurrent.__enter__()
        return super().__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        self._recurrent.__exit__(kind, error, trace)

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operator, and note what cuDNN may take for it."""
        result = super().call(func, args, kwargs)
        if func._overloadpacket in _CONVOLUTIONS:
            self._assume_workspace("cudnn_convolution_workspace", _WORKSPACES, args, result)
        if self.storages.phase != "forward":
            self._kept = max(self._kept, self._recurrent.take())
        return result

    def doubts(self, peak: int) -> Iterator[Doubt]:
        """What cuDNN may take for convolutions and recurrent layers."""
        yield from super().doubts(peak)
        if self._kept:
            yield Doubt(
                "cudnn_recurrent_layers",
                "what cuDNN keeps of recurrent layers for backward is not in it: assumed to be no more than "
                f"{_KEPT_VALUES} values for each time step, sample and hidden unit",
                self._kept,
            )


class _RecurrentCalls:
    """Adds up the bytes that torch's recurrent functions may keep for backward in a forward pass, while it is
    entered. `nn.LSTM` and `nn.GRU` find these functions in `torch._VF`, `nn.RNN` in a table.
    """

    def __init__(self) -> None:
        self._num_bytes = 0

    def __enter__(self) -> Self:
        for name in _RECURRENT_FUNCTIONS:
            counted = self._counted(getattr(torch, name))
            setattr(torch._VF, name, counted)
            if name.upper() in _rnn_impls:
                _rnn_impls[name.upper()] = counted
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in _RECURRENT_FUNCTIONS:
            delattr(torch._VF, name)
            if name.upper() in _rnn_impls:
                _rnn_impls[name.upper()] = getattr(torch, name)

    def take(self) -> int:
        """The sum since the last call."""
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
