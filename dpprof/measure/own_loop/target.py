"""Runs a script on fake tensors that stand for those of a GPU, as an estimate does with dpprof's trainers.

The script runs on the CPU. Each of its tensors counts as the GPU's, but for what a `DataLoader`'s data set
holds and for the optimizers' counts of steps, which stay with the processor. Data loading really runs, so
that samplers sample; a batch is a fake tensor from then on.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.optim import optimizer as optimizers
from torch.utils import _foreach_utils
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from dpprof.config.devices import DEVICES
from dpprof.errors import EstimateError
from dpprof.measure.observe import Observer
from dpprof.measure.own_loop.fake_values import unknown_values
from dpprof.measure.own_loop.followed import Followed
from dpprof.measure.own_loop.lines import line_of
from dpprof.measure.own_loop.marks import wrapped
from dpprof.measure.own_loop.passes import labelled_by_opacus
from dpprof.measure.own_loop.unknown import REMEDY
from dpprof.measure.passes.estimate_ledger import CudaLedger, note_estimate
from dpprof.measure.passes.ledger import LabellingObserver, LedgerObserver
from dpprof.measure.passes.predictor import predictor_of
from dpprof.measure.trainers.fake_tensors import NEED_DATA, fake_tensors
from dpprof.record.figures.capacity import saved_by_expandable
from dpprof.record.folder import RunFolder
from dpprof.record.record import Record
from dpprof.vocabulary.formats import size
from dpprof.vocabulary.units import mib

_FOREACH_DEVICES = "_get_foreach_kernels_supported_devices"
_VARIES = (
    "batches differ in size, and a larger one needs more: the estimated steps had {samples} samples; the "
    "figures are those of the step with the highest peak; "
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True would save {saved} of what the device needs"
)


class OnTarget:
    """The ledger of a script's tensors on a listed GPU, from the script's beginning on."""

    def __init__(self, target: str) -> None:
        self.target = target
        self._ledger = CudaLedger("cpu", DEVICES[target], predictor_of(target))

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run a script in here. Raises EstimateError, with its line, if it needs the data of a tensor."""
        from dpprof.measure.trainers.opacus.dpsgd import DPSGDTrainer  # imports Opacus

        warnings.filterwarnings("ignore", "Accessing the data pointer of FakeTensor")  # torch does so itself
        kinds = [*optimizers._foreach_supported_types, FakeTensor]
        with (
            fake_tensors(DPSGDTrainer, as_on_cuda=True, as_autocast_on_cuda=True),
            # Optimizers update all parameters at once, CUDA's default.
            wrapped(optimizers, _FOREACH_DEVICES, lambda _: ["cuda", "cpu"]),
            wrapped(_foreach_utils, _FOREACH_DEVICES, lambda _: ["cuda", "cpu"]),
            patch.object(optimizers, "_foreach_supported_types", kinds),
            patch.object(torch.cuda, "is_available", lambda: False),
            wrapped(DataLoader, "__init__", self._make),
            wrapped(DataLoader, "_get_iterator", _load),
            wrapped(_BaseDataLoaderIter, "__next__", _load),
            unknown_values(),
            self._ledger,
        ):
            try:
                yield
            except NEED_DATA as error:
                what = f"{line_of(error)} needs the values of a tensor, for {error.func}"
                raise EstimateError(f"{what}, which --target does not compute: {REMEDY}") from error

    @contextmanager
    def warming(self, followed: Followed) -> Iterator[Observer]:
        """Label the tensors of steps that are not counted."""
        yield LabellingObserver(self._ledger, followed)
        if elsewhere := {p.device.type for p in followed.model.parameters()} - {"cpu"}:
            raise EstimateError(
                f"the model is on {min(elsewhere)}: let the script train on the CPU for --target"
            )
        # On CUDA, too, optimizers count their steps on the CPU.
        for state in (state for one in followed.optimizers for state in one.state.values()):
            if isinstance(step := state.get("step"), Tensor):
                self._ledger.storages.leave_out(step)

    @contextmanager
    def estimating(
        self, followed: Followed, folder: RunFolder, record: Record, samples: list[int]
    ) -> Iterator[Observer]:
        """Add the estimate of the step with the highest peak to a record; `samples` go by step."""
        observer = LedgerObserver(self._ledger, followed)
        with labelled_by_opacus(observer, followed.model):
            yield observer
        kept = observer.highest
        assert kept is not None, "no step was done"
        kept.result.from_allocator = self._ledger.from_allocator(kept.account)
        kept.result.doubts = list(self._ledger.doubts(kept.account.peak))
        kept.result.segments = self._ledger.segments(kept.account)
        if are_sampled := len(set(samples)) > 1:
            saved = size(mib(saved_by_expandable(kept.result)))
            record.warnings.append(_VARIES.format(samples=", ".join(map(str, samples)), saved=saved))
        note_estimate(kept, record, folder, may_grow=not are_sampled)

    def _make(self, make: Any, loader: DataLoader[Any], *args: Any, **kwargs: Any) -> None:
        make(loader, *args, **kwargs)
        dataset: Any = loader.dataset
        while dataset is not None:
            for tensor in tree_leaves(list(getattr(dataset, "__dict__", {}).values())):
                if isinstance(tensor, Tensor):
                    self._ledger.storages.leave_out(tensor)
            dataset = getattr(dataset, "dataset", None)  # of a Subset


def _load(load: Callable[[Any], Any], source: Any) -> Any:
    """Load a batch, or begin to, with real numbers; a batch is fake from then on."""
    with _disable_current_modes():
        loaded = load(source)
    return tree_map_only(Tensor, lambda t: torch.empty_strided(t.shape, t.stride(), dtype=t.dtype), loaded)
