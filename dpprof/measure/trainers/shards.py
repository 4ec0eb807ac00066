"""Fully sharded data parallelism: a shard of every parameter on each rank (`--parallel fsdp2`)."""

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.fsdp._fully_shard._fsdp_param_group import FSDPParamGroup
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.experimental import implicit_replication

from dpprof.measure.observe import Observer
from dpprof.measure.trainers.buckets import Bucket, flat, together
from dpprof.measure.trainers.parallel import Several, local
from dpprof.vocabulary.parallel import FSDP2


class Shards(Several):
    """Shards parameters, gradients and optimizer state; gathers a layer's weights while it computes.

    Uses torch's `fully_shard`, one group per layer, as Opacus's `FSDP2Wrapper` does.
    """

    way = FSDP2

    def sharded(self, model: nn.Module) -> nn.Module:
        """Turn the model's parameters into `DTensor`s, in place."""
        with unset_fake_temporarily():  # a mesh reads its ranks
            self._mesh = init_device_mesh(self.device.type, (self.world_size,))
        for module in list(model.modules()):
            if module is not model and next(module.parameters(recurse=False), None) is not None:
                fully_shard(module, mesh=self._mesh)
        fully_shard(model, mesh=self._mesh)
        return model

    def labelling(self, observer: Observer) -> AbstractContextManager[Any]:
        """Label gathered weights, whose tensors are made when FSDP first waits for them."""
        if not observer.follows_tensors:
            return nullcontext()
        wait = FSDPParamGroup.wait_for_unshard

        def labelled(group: Any) -> None:
            with observer.label_new("gathered_parameters"):
                wait(group)

        return patch.object(FSDPParamGroup, "wait_for_unshard", labelled)

    def adding_noise(self) -> AbstractContextManager[Any]:
        """Let Opacus add ordinary tensors to distributed ones."""
        return implicit_replication()

    def together(self, parameters: list[nn.Parameter]) -> Iterable[list[nn.Parameter]]:
        """Group parameters that fill a bucket."""
        return together(parameters)

    def base_of_sum(self, so_far: Tensor | None) -> None:
        """Return None: the gradient is a shard, and the sum is not."""

    @torch.no_grad()
    def exchanged(
        self, sums: list[Tensor], parameters: list[nn.Parameter], so_far: list[Tensor | None]
    ) -> list[Tensor]:
        """Return shards of the means over all ranks, added to those so far."""
        rows = [-(-total.shape[0] // self.world_size) for total in sums]
        chunks = [n * total[:1].numel() for n, total in zip(rows, sums, strict=True)]
        bucket = Bucket([flat(total.contiguous()) for total in sums], chunks, self.rank, self.world_size)
        means = bucket.reduce_scattered()
        return [_added(*each) for each in zip(means, parameters, so_far, strict=True)]

    def over_ranks(self, count: Tensor) -> Tensor:
        """Sum a count over all ranks, which would otherwise wait for one another in the next layer."""
        counted = count.clone()
        dist.all_reduce(counted)
        return counted

    def begin_exchange(self, gradients: list[Tensor]) -> list[Tensor]:
        """Return this rank's shards, which were exchanged when they were made."""
        return [local(gradient) for gradient in gradients]


def _added(mean: Tensor, parameter: Any, so_far: Tensor | None) -> Tensor:
    """Return the padded mean as a distributed tensor like the parameter, or added to the gradient so far."""
    shard = local(parameter)
    mean = mean[: shard.numel()].view(shard.shape)
    if so_far is not None:
        local(so_far).add_(mean)
        return so_far
    return DTensor.from_local(
        mean,
        parameter.device_mesh,
        parameter.placements,
        run_check=False,
        shape=parameter.shape,
        stride=parameter.stride(),
    )
