"""DP-SGD with per-sample gradients by `torch.func.vmap`, which dpprof does not have, as a trainer of your own.

From this folder: `dpprof sweep --trainers standard,flat,vmap_trainer:VMAP`.
"""

from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from dpprof.measure.trainers.base import TrainerBase
from dpprof.measure.trainers.nested import call
from dpprof.vocabulary.settings import setting
from dpprof.vocabulary.trainers import TrainerInfo


@dataclass(frozen=True)
class VmapOptions:
    """The setting of this trainer."""

    microbatch_size: int = setting(0, "Samples whose gradients exist at once; 0 is all.", minimum=0)


class VmapTrainer(TrainerBase):
    """Takes the gradient of one sample under `vmap`, clips, and adds up, a microbatch at a time."""

    def step(self, physical_batches: tuple[Any, ...]) -> None:
        """Take one optimizer step on the samples of all physical batches."""
        with self.phase("zero_grad"):
            self.optimizer.zero_grad()
            summed = [torch.zeros_like(p) for p in self.parameters]
        for batch in physical_batches:
            for microbatch in self._split(batch):
                with self.phase("backward"):  # with the forward, which `vmap` does not part from it
                    losses, gradients = self._per_sample(*microbatch)
                    self.last_loss = losses.mean()
                with self.phase("clip"):
                    self._add_clipped(gradients, summed)
                del gradients
        with self.phase("noise"):
            deviation = self.noise_multiplier * self.max_grad_norm
            for parameter, total in zip(self.parameters, summed, strict=True):
                noisy = total + deviation * torch.randn_like(total)
                parameter.grad = noisy / (self.batch_size * self.accumulation_steps)
        with self.phase("optimizer_step"):
            self.optimizer.step()

    def _split(self, batch: Any) -> list[Any]:
        size = len(next(t for t in tree_leaves(batch) if isinstance(t, Tensor)))
        width = self.options.microbatch_size or max(1, size)
        return [tree_map(itemgetter(slice(first, first + width)), batch) for first in range(0, size, width)]

    def _per_sample(self, inputs: Any, targets: Any) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return each sample's loss, shape (B,), and its gradients, of shapes (B, *parameter)."""
        names = [name for name, p in self.model.named_parameters() if p.requires_grad]

        def loss_of_one(weights: tuple[Tensor, ...], inputs: Any, target: Any) -> Tensor:
            inputs, target = tree_map(lambda t: t.unsqueeze(0), (inputs, target))
            named = dict(zip(names, weights, strict=True))
            model: Any = partial(_called, self.model, named)
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bf16"):
                return self.loss(call(model, inputs), target).squeeze(0)

        of_one = torch.func.grad_and_value(loss_of_one)
        weights = tuple(p.detach() for p in self.parameters)
        gradients, losses = torch.func.vmap(of_one, (None, 0, 0), randomness="different")(
            weights, inputs, targets
        )
        return losses, gradients

    @torch.no_grad()
    def _add_clipped(self, gradients: tuple[Tensor, ...], summed: list[Tensor]) -> None:
        norms = [torch.linalg.vector_norm(g.flatten(1), dim=1, dtype=_wide(g)) for g in gradients]
        factors = self.clip_factor(torch.stack(norms).norm(dim=0), self.max_grad_norm)
        for total, gradient in zip(summed, gradients, strict=True):
            total += torch.tensordot(factors.to(gradient.dtype), gradient, dims=1)


def _called(model: torch.nn.Module, weights: dict[str, Tensor], *args: Any, **kwargs: Any) -> Any:
    return torch.func.functional_call(model, weights, args, kwargs)


def _wide(t: Tensor) -> torch.dtype:
    return torch.promote_types(t.dtype, torch.float32)


VMAP = TrainerInfo(
    "VmapTrainer",
    "vmap",
    is_private=True,
    color="#7f3c8d",
    phases=("zero_grad", "backward", "clip", "noise", "optimizer_step"),
    categories=(),
    target="vmap_trainer:VmapTrainer",
    options=VmapOptions,
    is_default=False,
    unaccounted="",
)
