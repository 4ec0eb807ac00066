"""Runs a script on fake tensors that stand for those of a GPU, as an estimate does with dpprof's trainers.

The script runs on the CPU. Each of its tensors counts as the GPU's, but for what a `DataLoader`'s data set
holds and for the optimizers' counts of steps, which stay with the processor. Data loading really runs, so
that samplers sample; a batch is a fake tensor from then on.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    UnsupportedOperatorException,
)
from torch.optim import optimizer as optimizers
from torch.utils import _foreach_utils
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from dpprof.config.devices import DEVICES
from dpprof.errors import EstimateError
from dpprof.measure.observe import Observer
from dpprof.measure.own_loop.lines import line_of
from dpprof.measure.own_loop.passes import Followed, labelled_by_opacus
from dpprof.measure.own_loop.unknown import REMEDY, unknown_values
from dpprof.measure.passes.estimate_ledger import CudaLedger
from dpprof.measure.passes.ledger import LabellingObserver, LedgerObserver
from dpprof.measure.trainers.fake_tensors import fake_tensors
from dpprof.measure.trainers.opacus.dpsgd import DPSGDTrainer
from dpprof.record.folder import RunFolder
from dpprof.record.ledger import GROWING, Doubt
from dpprof.record.record import Record

_NEED_DATA = (DataDependentOutputException, DynamicOutputShapeException, UnsupportedOperatorException)
_VARIES = (
    "batches differ in size, and a larger one needs more: the estimated steps had {} samples, and the figures "
    "are those of the step with the highest peak"
)
_LOST = (
    "{line} takes float() of a tensor whose value --target does not compute: it is nan there, and what "
    "depends on it goes as with nan"
)


class OnTarget:
    """The ledger of a script's tensors on a listed GPU, from the script's beginning on."""

    def __init__(self, target: str) -> None:
        self.target = target
        self._ledger = CudaLedger("cpu", DEVICES[target])
        self._lost: dict[str, None] = {}

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run a script in here. Raises EstimateError, with its line, if it needs the data of a tensor."""
        with ExitStack() as stack:
            stack.enter_context(fake_tensors(DPSGDTrainer, as_on_cuda=True, as_autocast_on_cuda=True))
            stack.enter_context(_lines_named())
            stack.enter_context(_foreach_as_on_cuda())
            stack.enter_context(patch.object(nn.Module, "_apply", _apply))
            stack.enter_context(unknown_values(lambda line: self._lost.setdefault(line)))
            stack.enter_context(self._loading())
            stack.enter_context(self._ledger)
            yield

    @contextmanager
    def warming(self, followed: Followed) -> Iterator[Observer]:
        """Label the tensors of steps that are not counted."""
        yield LabellingObserver(self._ledger, followed)
        # On CUDA, too, optimizers count their steps on the CPU.
        for state in (state for one in followed.optimizers for state in one.state.values()):
            if isinstance(step := state.get("step"), Tensor):
                self._ledger.storages.leave_out(step)

    @contextmanager
    def estimating(
        self, followed: Followed, record: Record, folder: RunFolder, samples: list[int]
    ) -> Iterator[Observer]:
        """Add the estimate of the step with the highest peak to a record; `samples` are those of each step."""
        observer = LedgerObserver(self._ledger, followed)
        with labelled_by_opacus(observer, followed.model):
            yield observer
        kept = observer.highest
        assert kept is not None, "no step was done"
        result = record.ledger = kept.result
        result.from_allocator = self._ledger.from_allocator(kept.account)
        result.doubts = list(self._ledger.doubts(kept.account.peak))
        if len(set(samples)) > 1:
            record.warnings.append(_VARIES.format(", ".join(map(str, samples))))
        elif result.growth > 0:
            result.doubts.append(Doubt("growing_state", GROWING, None))
        result.segments = self._ledger.segments(kept.account)
        record.memory.peak_allocated = result.peak + sum(result.from_allocator.values())
        if result.segments is not None:
            record.memory.peak_reserved = result.segments.reserved
        record.warnings += [_LOST.format(line=line or "a library") for line in self._lost]
        folder.write_ledger(result, kept.account.timeline())

    @contextmanager
    def _loading(self) -> Iterator[None]:
        """Load data for real, on the processor, and let batches arrive as fake tensors."""
        made, begun, loaded = DataLoader.__init__, DataLoader._get_iterator, _BaseDataLoaderIter.__next__

        def make(loader: DataLoader[Any], *args: Any, **kwargs: Any) -> None:
            made(loader, *args, **kwargs)
            for tensor in _held_by(loader.dataset):
                self._ledger.storages.leave_out(tensor)

        def begin(loader: DataLoader[Any]) -> Any:
            with _disable_current_modes():
                return begun(loader)

        def load(batches: Any) -> Any:
            with _disable_current_modes():
                batch = loaded(batches)
            return tree_map_only(Tensor, _arrived, batch)

        with (
            patch.object(DataLoader, "__init__", make),
            patch.object(DataLoader, "_get_iterator", begin),
            patch.object(_BaseDataLoaderIter, "__next__", load),
        ):
            yield


def _held_by(dataset: Any) -> Iterator[Tensor]:
    while dataset is not None:
        held = tree_leaves(list(getattr(dataset, "__dict__", {}).values()))
        yield from (tensor for tensor in held if isinstance(tensor, Tensor))
        dataset = getattr(dataset, "dataset", None)  # of a Subset


def _apply(module: nn.Module, convert: Callable[[Tensor], Tensor], recurse: bool = True) -> nn.Module:
    """Convert a module's tensors, as `to` does: torch cannot swap fake ones, not even for themselves."""
    converted: dict[Tensor, Tensor] = {}
    for one in module.modules() if recurse else [module]:
        for named in (one._parameters, one._buffers):
            for name, tensor in named.items():
                with torch.no_grad():
                    new = None if tensor is None else converted.get(tensor, convert(tensor))
                if tensor is None or new is None or new is tensor:
                    continue
                if isinstance(tensor, nn.Parameter) and not isinstance(new, nn.Parameter):
                    new = nn.Parameter(new, tensor.requires_grad)
                named[name] = converted[tensor] = new
    return module


def _arrived(tensor: Tensor) -> Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)


@contextmanager
def _foreach_as_on_cuda() -> Iterator[None]:
    """Let optimizers take the form that updates all parameters at once, CUDA's default."""
    supported = lambda: ["cuda", "cpu"]  # noqa: E731
    name = "_get_foreach_kernels_supported_devices"
    kinds = [*optimizers._foreach_supported_types, FakeTensor]
    with (
        patch.object(optimizers, name, supported),
        patch.object(_foreach_utils, name, supported),
        patch.object(optimizers, "_foreach_supported_types", kinds),
    ):
        yield


@contextmanager
def _lines_named() -> Iterator[None]:
    try:
        yield
    except _NEED_DATA as error:
        raise EstimateError(
            f"{line_of(error)} needs the values of a tensor, for {error.func}, and --target does not compute "
            f"them: {REMEDY}"
        ) from error
