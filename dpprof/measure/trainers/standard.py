"""Standard SGD: the baseline without privacy."""

from typing import Any

from dpprof.measure.trainers.base import TrainerBase


class StandardTrainer(TrainerBase):
    """Ordinary training: the gradient of the mean loss over the logical batch.

    The loop is that of PyTorch's tutorial "Training with PyTorch"; with accumulation the loss is divided by
    the number of physical batches, as in "Automatic Mixed Precision examples", gradient accumulation.
    """

    is_private = False

    def _step(self, physical_batches: tuple[Any, ...]) -> None:
        with self._phase("zero_grad"):
            self.optimizer.zero_grad()
        for batch in physical_batches:
            with self._phase("forward"):
                self._loss = self._losses(batch).mean()
                if self.accumulation_steps > 1:
                    self._loss = self._loss / self.accumulation_steps
            with self._phase("backward"):
                self._loss.backward()
        with self._phase("optimizer_step"):
            self.optimizer.step()
