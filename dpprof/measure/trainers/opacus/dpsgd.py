"""DP-SGD with flat per-sample clipping, in phases.

`DPOptimizer.step()` does accumulation, noise and the optimizer's step in one call. Tests hold that results
are bitwise the same, and memory and traffic to the byte those of Opacus's tutorials.
"""

import copy
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest.mock import patch

import torch
from opacus.distributed import DifferentiallyPrivateDistributedDataParallel
from opacus.grad_sample import GradSampleModule, functorch
from opacus.optimizers import DistributedDPOptimizer, DPOptimizer, optimizer_fast_gradient_clipping
from torch import Tensor, nn
from torch._subclasses.fake_tensor import unset_fake_temporarily

from dpprof.errors import WorkloadError
from dpprof.measure.trainers.base import Held, TrainerBase
from dpprof.measure.trainers.gradient_hooks import refuse_changes_by_hooks
from dpprof.measure.trainers.opacus.foreseen import (
    SENTENCES,
    Foreseen,
    hook_warnings,
    hooked,
    silent_traps,
    unbounded,
)
from dpprof.measure.trainers.opacus.labels import kept_by_opacus, labelled_within
from dpprof.measure.trainers.trial_batch import Trial, tried
from dpprof.measure.trainers.watched_step import Trap, WatchedStep, has_channels_last
from dpprof.measure.workloads.sampling import num_samples
from dpprof.vocabulary.loops import GRADIENTS, OUTPUTS
from dpprof.vocabulary.parallel import DDP, NONE


class DPSGDTrainer(TrainerBase):
    """Materialises every per-sample gradient, then clips it (Abadi et al. 2016; Opacus's `DPOptimizer`).

    As with `BatchMemoryManager`, there is a `step()` after each physical batch, and all but the last are
    skipped. As in Opacus, other ways to compute or clip gradients derive from this one.
    """

    all_savings = (GRADIENTS, OUTPUTS)
    rank_0_differs = frozenset({DDP})  # it alone draws noise
    optimizer_wrappers: ClassVar[Mapping[str, type[DPOptimizer]]] = {
        NONE: DPOptimizer,
        DDP: DistributedDPOptimizer,
    }
    use_ghost_clipping = False
    takes_channels_last = False  # `unfold2d` of Opacus's rule for convolutions does not
    _has_stepped = False
    _trial: Trial | None = None

    def __init__(self, model: nn.Module, *args: Any, **more: Any) -> None:
        for name, parameter in model.named_parameters():
            if parameter.requires_grad and parameter.is_complex():
                raise WorkloadError(SENTENCES["complex"].format(parameter=name))
        refuse_changes_by_hooks(model, SENTENCES["gradient_hook"])
        super().__init__(model, *args, **more)

    def profile_step(self, *physical_batches: Any) -> None:
        """Try the model first, then do the step.

        Raises WorkloadError for a module whose input has as many rows as the batch only by chance: Opacus
        would take each row for a sample. Raises it, too, for a convolution over images with their channels
        last, of which Opacus's gradient would be wrong.
        """
        batch_size = num_samples(physical_batches) if self.poisson_sampling else self.batch_size
        if batch_size > 1 and (self._trial is None or self._trial.size == batch_size):
            self._trial = tried(self, physical_batches[0], batch_size)
            paths = {module: path for path, module in self.model.named_modules()}
            for module in hooked(self.model):
                path = paths[module] or "the model"
                if batch_size in self._trial.lengths.get((path, "[0][0]"), ()):
                    words = {"module": path, "length": batch_size, "samples": self._trial.size}
                    raise WorkloadError(SENTENCES["shared"].format(**words))
        with nullcontext() if self._has_stepped or self.takes_channels_last else _row_by_row(self.model):
            super().profile_step(*physical_batches)
        self._has_stepped = True

    def wrap_model(self) -> nn.Module:
        """Add hooks that compute per-sample gradients."""
        return GradSampleModule(self.model_of_rank())

    def model_of_rank(self) -> nn.Module:
        """Return the model as ranks share it, without hooks yet."""
        if self.parallel.way == DDP:
            return DifferentiallyPrivateDistributedDataParallel(self.model)
        return self.parallel.sharded(self.model)

    def wrap_optimizer(self, optimizer: torch.optim.Optimizer) -> DPOptimizer:
        """Wrap the optimizer by one that clips and adds noise."""
        return self.optimizer_wrappers[self.parallel.way](
            optimizer,
            noise_multiplier=self.noise_multiplier,
            max_grad_norm=self.max_grad_norm,
            expected_batch_size=self.batch_size * self.accumulation_steps,
        )

    def held_tensors(self) -> Held:
        """Add the tensors that Opacus keeps."""
        return super().held_tensors() | kept_by_opacus(self.model, self.forward_model)

    def drop_gradients(self) -> None:
        """Release the norms too, which Opacus's `zero_grad` keeps."""
        super().drop_gradients()
        for parameter in self.parameters:
            if hasattr(parameter, "_norm_sample"):
                del parameter._norm_sample

    def label_transient_tensors(self) -> AbstractContextManager[None]:
        """Label per-sample gradients, and the (B, T, T) tensors of a ghost norm."""
        return labelled_within(self.observer, self.model, self.forward_model)

    @staticmethod
    def clip_factor(norm: Tensor, max_grad_norm: float) -> Tensor:
        """Opacus's clip factor: min(1, C / (norm + 1e-6))."""
        return (max_grad_norm / (norm + 1e-6)).clamp(max=1.0)

    @classmethod
    def foresee(cls, step: WatchedStep) -> list[Trap]:
        """Return Opacus's limits in the watched model, including those that raise no error."""
        silent = [Trap("silent", text, "", is_warning=True) for text in silent_traps(step.model)]
        return [*Foreseen(step).traps(is_ghost=cls.use_ghost_clipping), *silent]

    def warnings(self) -> list[str]:
        """Return warnings about limits of Opacus that raise no error."""
        return [*silent_traps(self.model), *hook_warnings(self.model)]

    def unbounded(self) -> list[str]:
        """Return those warnings that leave no guarantee."""
        return unbounded(self.model)

    @classmethod
    @contextmanager
    def on_fake_tensors(cls) -> Iterator[None]:
        """Run Opacus with stand-ins of the same memory for what it cannot do on fake tensors.

        The optimizer of ghost and fast gradient clipping copies gradients by `copy.deepcopy`, which corrupts
        memory there. A module without a grad sampler is copied and moved to the meta device, where torch
        cannot move fake parameters: it is copied onto the meta device instead.
        """
        with (
            patch.object(optimizer_fast_gradient_clipping, "copy", SimpleNamespace(deepcopy=torch.clone)),
            patch.object(functorch, "copy", SimpleNamespace(deepcopy=_copy_on_meta)),
        ):
            yield

    def unhooked(self) -> AbstractContextManager[Any]:
        """Disable Opacus's hooks."""
        return patch.object(self.forward_model, "hooks_enabled", False)

    def _reduced(self, losses: Tensor) -> Tensor:
        """Reduce the losses, shape (B,), to what the loop calls its loss."""
        return losses.mean()

    def _accumulate_clipped(self, loss: Tensor) -> None:
        """Backward and clip: add the physical batch's clipped gradients to `summed_grad`."""
        with self.phase("backward"):
            loss.backward()
        with self.phase("clip"), self.observer.label_new("clip_factors", self._is_one_per_sample):
            self._clip()

    def _clip(self) -> None:
        self.optimizer.clip_and_accumulate()

    def _is_one_per_sample(self, shape: torch.Size) -> bool:
        return shape[:1] == (self.num_samples,) and shape.numel() <= self.num_samples * len(self.parameters)

    def _add_noise(self) -> None:
        """Do as `DPOptimizer.pre_step` at the end of a logical batch."""
        self.optimizer.add_noise()
        self.optimizer.scale_grad()
        if self.optimizer.step_hook:
            self.optimizer.step_hook(self.optimizer)

    def step(self, physical_batches: tuple[Any, ...]) -> None:
        """Accumulate the clipped gradients of all physical batches, then add noise and step the optimizer."""
        last = len(physical_batches) - 1
        for index, batch in enumerate(physical_batches):
            self.optimizer.signal_skip_step(do_skip=index < last)
            with self.phase("zero_grad"):
                # Zeroes gradients, as Opacus does by default, or drops them, as PyTorch does.
                self.optimizer.zero_grad(set_to_none=self.saves(GRADIENTS))
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


def _copy_on_meta(module: nn.Module) -> nn.Module:
    """Deep copy with real parameters on the meta device: nothing that a ledger would see."""
    with unset_fake_temporarily():
        on_meta = {
            id(p): nn.Parameter(torch.empty(p.shape, dtype=p.dtype, device="meta"), p.requires_grad)
            for p in module.parameters()
        }
        return copy.deepcopy(module, on_meta)


@contextmanager
def _row_by_row(model: nn.Module) -> Iterator[None]:
    """Refuse images that `torch.channels_last` stores, where a convolution gets them."""

    def refuse(path: str, images: object) -> None:
        if isinstance(images, Tensor) and has_channels_last(images):
            raise WorkloadError(SENTENCES["channels_last"].format(module=path or "the model"))

    with ExitStack() as stack:
        for path, module in model.named_modules():
            if type(module) is nn.Conv2d and any(p.requires_grad for p in module.parameters()):
                hook = module.register_forward_pre_hook(lambda _, args, path=path: refuse(path, *args[:1]))
                stack.callback(hook.remove)
        yield
