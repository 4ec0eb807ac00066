"""What the DP-SGD trainers share: accumulation, noise and the optimizer's step, in phases.

`DPOptimizer.step()` does these in one call. Taken apart, they are timed one by one. Tests hold that the
result is bitwise that of `step()`, and that memory and traffic are to the byte those of the loop in Opacus's
tutorials.
"""

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from opacus.optimizers import DPOptimizer
from torch import Tensor

from dpprof.measure.trainers.announce import announce_per_sample_gradients
from dpprof.measure.trainers.base import TrainerBase
from dpprof.vocabulary.loops import GRADIENTS, OUTPUTS


class PrivateTrainer(TrainerBase):
    """A step of DP-SGD (Abadi et al. 2016, algorithm 1) with an Opacus optimizer.

    A subclass says how the clipped gradients of one physical batch come into `summed_grad`. Physical batches
    are accumulated as Opacus's `BatchMemoryManager` has it done: a `step()` after each, all but the last
    skipped.
    """

    all_savings = (GRADIENTS, OUTPUTS)
    optimizer_wrapper: type[DPOptimizer] = DPOptimizer

    def _wrap_optimizer(self, optimizer: torch.optim.Optimizer) -> DPOptimizer:
        return self.optimizer_wrapper(
            optimizer,
            noise_multiplier=self.noise_multiplier,
            max_grad_norm=self.max_grad_norm,
            expected_batch_size=self.batch_size * self.accumulation_steps,
        )

    @contextmanager
    def _announcing(self) -> Iterator[None]:
        names = {parameter: name for name, parameter in self.model.named_parameters()}
        with announce_per_sample_gradients(self.observer, names):
            yield

    @abstractmethod
    def _compute_loss(self, losses: Tensor) -> Tensor:
        """What the loop calls its loss, from one loss per sample, shape (B,)."""

    @abstractmethod
    def _accumulate_clipped(self, loss: Tensor) -> None:
        """Backward and clip: add the physical batch's clipped gradients to `summed_grad`."""

    def _zero_grad(self) -> None:
        """Opacus's `zero_grad` keeps the gradients, zeroed, where PyTorch's drops them."""
        self.optimizer.zero_grad(set_to_none=GRADIENTS in self._made)

    def _step(self, physical_batches: tuple[Any, ...]) -> None:
        last = len(physical_batches) - 1
        for index, batch in enumerate(physical_batches):
            self.optimizer.signal_skip_step(do_skip=index < last)
            with self._phase("zero_grad"):
                self._zero_grad()
            with self._phase("forward"):
                self._loss = self._compute_loss(self._losses(batch))
            self._accumulate_clipped(self._loss)
            self.optimizer._is_last_step_skipped = self.optimizer._check_skip_next_step()
        with self._phase("noise"), self.observer.making("noise"):
            self.optimizer.add_noise()
            self.optimizer.scale_grad()
            if self.optimizer.step_hook:
                self.optimizer.step_hook(self.optimizer)
        with self._phase("optimizer_step"):
            self.optimizer.original_optimizer.step()
