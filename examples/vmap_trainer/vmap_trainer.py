"""DP-SGD with per-sample gradients by `torch.func.vmap`: an algorithm that dpprof does not have.

From this folder: `dpprof sweep --trainers standard,flat,vmap_trainer:VMAP`.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from dpprof.measure.trainers.base import TrainerBase
from dpprof.measure.trainers.nested import call
from dpprof.vocabulary.trainer_info import TrainerInfo


class VmapTrainer(TrainerBase):
    """Takes the gradient of one sample under `vmap`, clips, and adds up.

    A physical batch is one microbatch: `--batch-size 2 --accumulation-steps 7` takes the gradients of two
    samples at a time, and seven times that before it updates.
    """

    def step(self, physical_batches: tuple[Any, ...]) -> None:
        """Take one optimizer step on the samples of all physical batches."""
        with self.phase("zero_grad"):
            self.optimizer.zero_grad()
            summed = [torch.zeros_like(p) for p in self.parameters]
        for batch in physical_batches:
            if not len(tree_leaves(batch)[0]):  # Poisson sampling drew no sample, and `vmap` needs one
                continue
            with self.phase("backward"):  # with the forward, which `vmap` does not part from it
                losses, gradients = self._per_sample(*batch)
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

    def _per_sample(self, inputs: Any, targets: Any) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return each sample's loss, shape (B,), and its gradients, of shapes (B, *parameter)."""
        names = [name for name, p in self.model.named_parameters() if p.requires_grad]

        def loss_of_one(inputs: Any, target: Any, weights: tuple[Tensor, ...]) -> Tensor:
            inputs, target = tree_map(lambda t: t.unsqueeze(0), (inputs, target))
            model: Any = partial(_called, self.model, dict(zip(names, weights, strict=True)))
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bf16"):
                return self.loss(call(model, inputs), target).squeeze(0)

        def of_one(
            inputs: Any, target: Any, weights: tuple[Tensor, ...]
        ) -> tuple[Tensor, tuple[Tensor, ...]]:
            # `torch.func.grad` would keep what second derivatives need: several times the memory.
            loss, backward, *_ = torch.func.vjp(partial(loss_of_one, inputs, target), weights)
            (gradients,) = backward(torch.ones_like(loss), retain_graph=False, create_graph=False)
            return loss, gradients

        weights = tuple(p.detach() for p in self.parameters)
        return torch.func.vmap(of_one, (0, 0, None), randomness="different")(inputs, targets, weights)

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
    is_default=False,
    unaccounted="",
)
