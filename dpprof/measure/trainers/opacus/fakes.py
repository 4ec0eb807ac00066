"""What Opacus cannot do on fake tensors as it stands; each gets a stand-in of the same memory.

- The optimizer of ghost and fast gradient clipping copies gradients by `copy.deepcopy`, which corrupts
  memory on fake tensors. The stand-in is `clone`.
- A module without a grad sampler of its own is copied and moved to the meta device, where torch cannot move
  fake parameters. The stand-in copies it onto the meta device.
- An expanded weight cannot be made of a fake parameter. The stand-in makes it of one without data.
- Per-layer clipping reads the norm of its list of norms. The stand-in computes it on real tensors.
- Adaptive clipping reads the number of unclipped samples. With the stand-in its clipping norm stays as it is.
"""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch
from opacus.grad_sample import functorch
from opacus.optimizers import (
    AdaClipDPOptimizer,
    DPPerLayerOptimizer,
    adaclipoptimizer,
    optimizer_fast_gradient_clipping,
)
from torch import Tensor, nn
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.nn.utils._expanded_weights.expanded_weights_impl import ExpandedWeight

from dpprof.measure.trainers.replaced import replaced


@contextmanager
def opacus_on_fakes() -> Iterator[None]:
    """Opacus with its stand-ins."""
    with (
        replaced(optimizer_fast_gradient_clipping, "copy", SimpleNamespace(deepcopy=torch.clone)),
        replaced(functorch, "copy", SimpleNamespace(deepcopy=_copy_on_meta)),
        replaced(ExpandedWeight, "__new__", staticmethod(_expanded_on_meta)),
        replaced(DPPerLayerOptimizer, "__init__", unset_fake_temporarily()(DPPerLayerOptimizer.__init__)),
        replaced(adaclipoptimizer, "float", lambda count: 0.0),
        replaced(AdaClipDPOptimizer, "update_max_grad_norm", _compute_norm_only),
    ):
        yield


def _expanded_on_meta(cls: Any, weight: Tensor, *_: Any) -> Any:
    """Torch computes with the data of the weight that it stands for, never with its own."""
    with unset_fake_temporarily():
        on_meta = torch.empty(weight.shape, dtype=weight.dtype, device="meta")
        return torch.Tensor._make_subclass(cls, on_meta, True)


def _compute_norm_only(optimizer: AdaClipDPOptimizer) -> None:
    """What Opacus computes first, kept as long as the norm would be."""
    unclipped_frac = optimizer.unclipped_num / optimizer.sample_size
    optimizer.next_max_grad_norm = optimizer.max_grad_norm * torch.exp(
        -optimizer.clipbound_learning_rate * (unclipped_frac - optimizer.target_unclipped_quantile)
    )


def _copy_on_meta(module: nn.Module) -> nn.Module:
    """A deep copy whose parameters have no data and are not fake: nothing that a ledger would see."""
    with unset_fake_temporarily():
        on_meta = {
            id(p): nn.Parameter(torch.empty(p.shape, dtype=p.dtype, device="meta"), p.requires_grad)
            for p in module.parameters()
        }
        return copy.deepcopy(module, on_meta)
