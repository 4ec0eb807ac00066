"""What ranks have in common, however they share the training."""

import torch
import torch.distributed as dist

from dpprof.measure.trainers.parallel import Alone


class Several(Alone):
    """This process's rank of torch's default process group."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()

    def total(self, number: int) -> int:
        """Asks all ranks, which must all ask."""
        numbers = torch.tensor([number], device=self.device)
        dist.all_reduce(numbers)
        return int(numbers)
