"""What Opacus cannot do on fake tensors as it stands; each gets a stand-in of the same memory.

- The optimizer of ghost and fast gradient clipping copies gradients by `copy.deepcopy`, which corrupts
  memory on fake tensors. The stand-in is `clone`.
- A module without a grad sampler of its own is copied and moved to the meta device, where torch cannot move
  fake parameters. The stand-in copies it onto the meta device.
"""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import torch
from opacus.grad_sample import functorch
from opacus.optimizers import optimizer_fast_gradient_clipping
from torch import nn
from torch._subclasses.fake_tensor import unset_fake_temporarily

from dpprof.measure.trainers.opacus.labels import replaced


@contextmanager
def opacus_on_fakes() -> Iterator[None]:
    """Opacus with its stand-ins."""
    with (
        replaced(optimizer_fast_gradient_clipping, "copy", SimpleNamespace(deepcopy=torch.clone)),
        replaced(functorch, "copy", SimpleNamespace(deepcopy=_copy_on_meta)),
    ):
        yield


def _copy_on_meta(module: nn.Module) -> nn.Module:
    """A deep copy whose parameters have no data and are not fake: nothing that a ledger would see."""
    with unset_fake_temporarily():
        on_meta = {
            id(p): nn.Parameter(torch.empty(p.shape, dtype=p.dtype, device="meta"), p.requires_grad)
            for p in module.parameters()
        }
        return copy.deepcopy(module, on_meta)
