"""Keeps the losses of observed steps, to be read when the steps are over."""

import torch
from torch import Tensor

from dpprof.measure.observe import Observer


class KeptLosses(Observer):
    """Keeps every loss that the trainer computes; nothing waits for the device until they are read."""

    def __init__(self) -> None:
        self._losses: list[Tensor] = []

    def losses(self, losses: Tensor) -> None:
        """Keep one physical batch's losses, without their graph and the rest of their storage."""
        losses = losses.detach()
        is_part = losses.untyped_storage().nbytes() > losses.nbytes
        self._losses.append(losses.clone() if is_part else losses)

    def count_nonfinite(self) -> int:
        """The number of losses that are NaN or infinite; then forgets them. Waits for the device."""
        kept, self._losses = self._losses, []
        return sum(int((~torch.isfinite(losses)).sum()) for losses in kept)
