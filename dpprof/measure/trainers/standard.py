"""Standard SGD: the baseline without privacy."""

from typing import Any

from torch import nn

from dpprof.measure.trainers.base import TrainerBase


class StandardTrainer(TrainerBase):
    """Ordinary training: the gradient of the mean loss over the logical batch.

    As in PyTorch's "Training with PyTorch"; accumulation as in "Automatic Mixed Precision examples".
    """

    def wrap_model(self) -> nn.Module:
        """Wrap the model, with several ranks, to exchange gradients in backward."""
        return self.parallel.wrapped(self.model)

    def step(self, physical_batches: tuple[Any, ...]) -> None:
        """Do forward and backward of each physical batch, then step the optimizer."""
        with self.phase("zero_grad"):
            self.optimizer.zero_grad()
        for index, batch in enumerate(physical_batches, start=1):
            is_last = index == len(physical_batches)
            with self.parallel.physical_batch(self.forward_model, is_last=is_last):
                with self.phase("forward"):
                    self.last_loss = self.compute_losses(batch).mean()
                    if self.accumulation_steps > 1:
                        self.last_loss = self.last_loss / self.accumulation_steps
                with self.phase("backward"):
                    self.last_loss.backward()
        with self.phase("optimizer_step"):
            self.optimizer.step()
