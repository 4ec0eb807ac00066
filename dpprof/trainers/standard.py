"""Standard SGD: the baseline without privacy."""

from typing import Any

from dpprof.trainers.base import TrainerBase


class StandardTrainer(TrainerBase):
    """Ordinary training: the gradient of the mean loss over the logical batch."""

    is_private = False

    def _step(self, physical_batches: tuple[Any, ...]) -> None:
        with self._phase("zero_grad"):
            self.optimizer.zero_grad(set_to_none=True)
        for batch in physical_batches:
            with self._phase("forward"):
                loss = self._losses(batch).mean()
                if self.accumulation_steps > 1:
                    loss = loss / self.accumulation_steps
            with self._phase("backward"):
                loss.backward()
        with self._phase("optimizer_step"):
            self.optimizer.step()
