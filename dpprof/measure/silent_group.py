"""The process group of the alone pass: one rank's own part of every collective.

torch's fake process group makes a copy for each rank when it gathers, so that step time would grow with their
number, and gives DDP no result. The ledger and the profiler do not see this group's collectives.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

SILENT = "silent"
_c10d: Any = torch._C._distributed_c10d  # its stubs lack some of it


class SilentGroup(_c10d.ProcessGroup):
    """Sends nothing and waits for nobody. The other ranks' tensors are taken to equal this one's.

    A collective makes at most one copy, or two where it gathers around this rank's own part. Only those of
    data parallel training are there. Some have two names: the second is that of torch before 2.13.
    """

    def __init__(self, rank: int, world_size: int, name: str) -> None:
        super().__init__(rank, world_size)
        self._rank, self._world_size, self._name = rank, world_size, name

    @property
    def group_name(self) -> str:
        """Name by which functional collectives find the group."""
        return self._name

    def getBackendName(self) -> str:
        """Return torch's name for the backend."""
        return SILENT

    def allreduce(self, tensors: list[Tensor], opts: object = None) -> dist.Work:
        """Leave the tensors as they are."""
        return _done(tensors)

    allreduce_coalesced = reduce = broadcast = allreduce

    def barrier(self, opts: object = None) -> dist.Work:
        """Return at once."""
        return _done([])

    @torch.no_grad()
    def allgather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: object = None) -> dist.Work:
        """Fill the tensors of all ranks with this one's."""
        for parts, own in zip(outputs, inputs, strict=True):
            torch._foreach_copy_(parts, [own] * len(parts))
        return _done([part for parts in outputs for part in parts])

    def all_gather_single(self, output: Tensor, own: Tensor, opts: object = None) -> dist.Work:
        """Fill the whole tensor with this rank's part."""
        return self.all_gather_single_coalesced([output], [own])

    _allgather_base = all_gather_single

    @torch.no_grad()
    def all_gather_single_coalesced(
        self, outputs: list[Tensor], inputs: list[Tensor], opts: object = None
    ) -> dist.Work:
        """Fill each whole tensor with this rank's part."""
        for output, own in zip(outputs, inputs, strict=True):
            ranks = output.view(self._world_size, -1)
            parts = [ranks]
            if own.data_ptr() == ranks[self._rank].data_ptr():  # in place already, as with FSDP
                parts = [ranks[: self._rank], ranks[self._rank + 1 :]]
            for rows in parts:
                rows.copy_(own.reshape(1, -1))
        return _done(outputs)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    @torch.no_grad()
    def reduce_scatter(
        self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: object = None
    ) -> dist.Work:
        """Take this rank's own part."""
        for output, parts in zip(outputs, inputs, strict=True):
            output.copy_(parts[self._rank])
        return _done(outputs)

    def reduce_scatter_single(self, output: Tensor, whole: Tensor, opts: object = None) -> dist.Work:
        """Take this rank's own part."""
        return self.reduce_scatter_single_coalesced([output], [whole])

    _reduce_scatter_base = reduce_scatter_single

    @torch.no_grad()
    def reduce_scatter_single_coalesced(
        self, outputs: list[Tensor], inputs: list[Tensor], opts: object = None
    ) -> dist.Work:
        """Take this rank's own part of each."""
        for output, whole in zip(outputs, inputs, strict=True):
            output.view(-1).copy_(whole.reshape(self._world_size, -1)[self._rank])
        return _done(outputs)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced


def _done(tensors: list[Tensor]) -> dist.Work:
    future: torch.futures.Future[list[Tensor]] = torch.futures.Future()
    future.set_result(tensors)
    return _c10d._create_work_from_future(future)


def _create(told: Any, options: Any) -> SilentGroup:
    return SilentGroup(told.group_rank, told.group_size, told.group_id)


dist.Backend.register_backend(SILENT, _create, extended_api=True, devices=["cpu", "cuda"])
