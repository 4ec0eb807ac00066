"""What the trainers of Opacus share: accumulation, noise and the optimizer's step, in phases.

`DPOptimizer.step()` does these in one call. Taken apart, they are timed one by one. Tests hold that the
result is bitwise that of `step()`, and that memory and traffic are to the byte those of the loop in Opacus's
tutorials.
"""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, ClassVar

import torch
from opacus.distributed import DifferentiallyPrivateDistributedDataParallel
from opacus.optimizers import DistributedDPOptimizer, DPOptimizer
from torch import Tensor, nn

from dpprof.measure.trainers.base import Held, TrainerBase
from dpprof.measure.trainers.nested import attributes
from dpprof.measure.trainers.opacus.fakes import opacus_on_fakes
from dpprof.measure.trainers.opacus.foreseen import foresee
from dpprof.measure.trainers.opacus.labels import label_per_sample_gradients
from dpprof.measure.trainers.opacus.silent_traps import silent_traps
from dpprof.measure.trainers.opacus.traps import diagnose
from dpprof.measure.trainers.seen import Trap, WatchedStep
from dpprof.vocabulary.loops import GRADIENTS, OUTPUTS
from dpprof.vocabulary.parallel import DDP, NONE

# Where Opacus keeps a parameter's tensors of a category.
_KEPT_UNDER = {
    "per_sample_gradients": "grad_sample",
    "gradient_norms": "_norm_sample",
    "summed_gradients": "summed_grad",
}


class OpacusTrainer(TrainerBase):
    """A step of DP-SGD (Abadi et al. 2016, algorithm 1) with an Opacus optimizer.

    A subclass says how the clipped gradients of one physical batch come into `summed_grad`. Physical batches
    are accumulated as Opacus's `BatchMemoryManager` has it done: a `step()` after each, all but the last
    skipped.
    """

    all_savings = (GRADIENTS, OUTPUTS)
    rank_0_differs = frozenset({DDP})  # it alone draws noise
    optimizer_wrappers: ClassVar[Mapping[str, type[DPOptimizer]]] = {
        NONE: DPOptimizer,
        DDP: DistributedDPOptimizer,
    }
    use_ghost_clipping = False
    is_functorch_forced = False

    def model_of_rank(self) -> nn.Module:
        """The model as ranks share it, still without hooks."""
        if self.parallel.way == DDP:
            copied: nn.Module = DifferentiallyPrivateDistributedDataParallel(self.model)
            return copied
        return self.parallel.sharded(self.model)

    def wrap_optimizer(self, optimizer: torch.optim.Optimizer) -> DPOptimizer:
        """The optimizer that clips and adds noise."""
        return self.optimizer_wrappers[self.parallel.way](
            optimizer,
            noise_multiplier=self.noise_multiplier,
            max_grad_norm=self.max_grad_norm,
            expected_batch_size=self.batch_size * self.accumulation_steps,
        )

    def held_tensors(self) -> Held:
        """What every trainer holds, and what Opacus keeps on parameters."""
        kept = {category: attributes(self.model, name) for category, name in _KEPT_UNDER.items()}
        return super().held_tensors() | {category: tensors for category, tensors in kept.items() if tensors}

    def drop_gradients(self) -> None:
        """Let go of the norms too, which Opacus's `zero_grad` leaves."""
        super().drop_gradients()
        for parameter in self.parameters:
            if hasattr(parameter, "_norm_sample"):
                del parameter._norm_sample

    @contextmanager
    def label_transient_tensors(self) -> Iterator[None]:
        """Per-sample gradients."""
        names = {parameter: name for name, parameter in self.model.named_parameters()}
        with label_per_sample_gradients(self.observer, names):
            yield

    @staticmethod
    def clip_factor(norm: Tensor, max_grad_norm: float) -> Tensor:
        """Opacus's: min(1, C / (norm + 1e-6))."""
        return (max_grad_norm / (norm + 1e-6)).clamp(max=1.0)

    @classmethod
    def explain(cls, error: Exception, model: nn.Module, batch_size: int) -> str | None:
        """The sentence for a limit of Opacus's."""
        return diagnose(error, model, batch_size)

    @classmethod
    def foresee(cls, step: WatchedStep) -> list[Trap]:
        """All limits of Opacus's that the watched model will meet, and those that raise no error."""
        silent = [Trap("silent", text, "", is_warning=True) for text in silent_traps(step.model)]
        foreseen = foresee(step, is_ghost=cls.use_ghost_clipping, is_functorch=cls.is_functorch_forced)
        return foreseen + silent

    def warnings(self) -> list[str]:
        """The sentences for limits of Opacus's that raise no error."""
        return silent_traps(self.model)

    @classmethod
    def on_fake_tensors(cls) -> AbstractContextManager[Any]:
        """Stand-ins for what Opacus copies."""
        return opacus_on_fakes()

    @abstractmethod
    def _reduced(self, losses: Tensor) -> Tensor:
        """What the loop calls its loss, from one loss per sample, shape (B,)."""

    @abstractmethod
    def _accumulate_clipped(self, loss: Tensor) -> None:
        """Backward and clip: add the physical batch's clipped gradients to `summed_grad`."""

    def _zero_grad(self) -> None:
        """Opacus's `zero_grad` keeps the gradients, zeroed, where PyTorch's drops them."""
        self.optimizer.zero_grad(set_to_none=self.saves(GRADIENTS))

    def _add_noise(self) -> None:
        """What `DPOptimizer.pre_step` does once a logical batch is complete."""
        self.optimizer.add_noise()
        self.optimizer.scale_grad()
        if self.optimizer.step_hook:
            self.optimizer.step_hook(self.optimizer)

    def step(self, physical_batches: tuple[Any, ...]) -> None:
        """Clipped gradients of each physical batch, then noise and the optimizer."""
        last = len(physical_batches) - 1
        for index, batch in enumerate(physical_batches):
            self.optimizer.signal_skip_step(do_skip=index < last)
            with self.phase("zero_grad"):
                self._zero_grad()
            with self.phase("forward"):
                self.last_loss = self._reduced(self.compute_losses(batch))
            self._accumulate_clipped(self.last_loss)
            self.optimizer._is_last_step_skipped = self.optimizer._check_skip_next_step()
        with self.phase("noise"), self.observer.label_new("noise"), self.parallel.adding_noise():
            self._add_noise()
        if self.parallel.way == DDP:
            with self.phase("reduce_gradients"):
                self.optimizer.reduce_gradients()
        with self.phase("optimizer_step"):
            self.optimizer.original_optimizer.step()
