"""DP-SGD of adapters by `vmap`, as the example of Opake takes its steps, in Opake's own functions.

`TORCH` clips each tensor in torch operators. `FOREACH` clips all tensors in lists: the nearest that torch has
to a kernel over many tensors. `opake.json` has phases and peaks of github.com/JetBrains-Research/opake.
A batch is Poisson sampling's, and Opake divides it into microbatches. Needs opake 0.16.
"""

import importlib
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F
import torchopt
from opake.dpsgd.clipping import clipped_grad
from opake.dpsgd.noise import gaussian_noise
from opake.functional import make_functional
from opake.optimizers import adafactor
from opake.patches import apply_runtime_patches
from opake.random import key
from torch import Tensor, nn
from torch._subclasses import fake_impls
from torch.utils._pytree import tree_map

from dpprof.measure.trainers.base import TrainerBase
from dpprof.measure.trainers.nested import call
from dpprof.vocabulary.settings import setting
from dpprof.vocabulary.trainer_info import TrainerInfo

Weights = dict[str, Tensor]
_CLIPPING: Any = importlib.import_module("opake.api.engine.clipping._clipped_fun")
_CLIP = "_stream_clip_and_sum"
_clip_each: Any = getattr(_CLIPPING, _CLIP)


@dataclass(frozen=True)
class VmapOptions:
    """Settings of both trainers."""

    microbatch_size: int = setting(2, "Samples whose gradients exist at once.", minimum=1)
    shares_inputs: bool = setting(
        True,
        "Let adapters of queries, keys and values compute in their input's type, as Opake's function does.",
    )
    drops_tensors: bool = setting(
        False, "Begin each step without the tensors of the one before, as the first step does."
    )
    waits: bool = setting(True, "Wait for the GPU after each phase, as the source's profiler does.")


class TorchTrainer(TrainerBase):
    """Clips one tensor after the other in torch operators: Opake's default."""

    def wrap_model(self) -> nn.Module:
        """Prepare Opake's functions over the weights that are trained."""
        self._stages = ExitStack()
        apply_runtime_patches(performance=False)
        if self.options.shares_inputs:
            _share_inputs(self.model)
        self._called, self._weights, self._frozen = make_functional(
            self.model, disable_autograd_tracking=True, partition_trainable=True
        )
        self._gradient, self._clip_state = clipped_grad(
            self._loss_of_one,
            clipping_norm=self.max_grad_norm,
            batch_argnums=(1, 2),
            normalize_by=self.batch_size,
            microbatch_size=self.options.microbatch_size,
            return_aux=True,
        )
        self._add_noise, self._noise_state = gaussian_noise(
            noise_multiplier=self.noise_multiplier, key=key(0)
        )
        self._clipped: Any = None
        self._noisy: Any = None
        self._updates: Any = None
        return self.model

    def wrap_optimizer(self, optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
        """Prepare Opake's Adafactor; the given optimizer never steps."""
        self._adafactor = adafactor(lr=optimizer.defaults["lr"])
        self._state = self._adafactor.init(self._weights)
        return optimizer

    def step(self, physical_batches: tuple[Any, ...]) -> None:
        """Take one step. Its sums, noisy sums and updates stay until the next step has made its own."""
        ((inputs, targets),) = physical_batches
        if self.options.drops_tensors:
            self._clipped = self._noisy = self._updates = None
        with patch.object(_CLIPPING, _CLIP, self._clip_in_phase):
            self._enter("backward")
            found = self._gradient(self._weights, inputs, targets, state=self._clip_state)
        (self._clipped, told), self._clip_state = found
        self._leave()
        self.last_loss = told.loss_values.mean()
        self._enter("noise")
        self._noisy, self._noise_state = self._add_noise(self._clipped, self._noise_state)
        self._leave()
        if not self.noise_multiplier:  # as in the gradient check
            for parameter, gradient in zip(self.parameters, self._noisy.pytree.values(), strict=True):
                parameter.grad = gradient.clone()
        self._enter("optimizer_step")
        found = self._adafactor.update(self._noisy, self._state, params=self._weights)
        self._updates, self._state = found
        self._weights = torchopt.apply_updates(self._weights, self._updates)
        self._leave()

    def clip(self, values: Weights, norm: Tensor, **how: Any) -> tuple[Any, ...]:
        """Return the sum of clipped gradients, and what else Opake wants to know of a microbatch."""
        clipped: tuple[Any, ...] = _clip_each(values, norm, **how)
        return clipped

    @classmethod
    def on_fake_tensors(cls) -> AbstractContextManager[Any]:
        """Let numbers that Opake reads from tensors be 1: they change no size and no operator."""
        read = torch.ops.aten._local_scalar_dense.default
        return patch.dict(fake_impls.op_implementations_dict, {read: lambda mode, func, tensor: 1.0})

    def _loss_of_one(self, weights: Weights, inputs: Any, target: Any) -> Tensor:
        inputs, target = tree_map(lambda tensor: tensor[None], (inputs, target))
        model: Any = partial(self._called, self._frozen | weights)
        return self.loss(call(model, inputs), target).squeeze(0)

    def _clip_in_phase(self, values: Weights, norm: Tensor, **how: Any) -> tuple[Any, ...]:
        self._enter("clip")
        found = self.clip(values, norm, **how)
        self._enter("backward")
        return found

    def _enter(self, phase: str) -> None:
        """Go from one phase to another, without waiting."""
        self._stages.close()
        self._stages.enter_context(self.phase(phase))

    def _leave(self) -> None:
        """Wait for the GPU, and end a phase."""
        if self.options.waits and self.device_type == "cuda":
            torch.cuda.synchronize()
        self._stages.close()


class ForeachTrainer(TorchTrainer):
    """Clips all tensors of a sample in lists."""

    def clip(self, values: Weights, norm: Tensor, **how: Any) -> tuple[Any, ...]:
        """Return the sum of clipped gradients, and what else Opake wants to know of a microbatch."""
        samples = [[tensor[i] for tensor in values.values()] for i in range(how["batch_size"])]
        norms = torch.stack([torch.stack(torch._foreach_norm(each)).norm() for each in samples])
        factors = (norm / norms).clamp(max=1.0)
        summed = torch._foreach_mul(samples[0], factors[0])
        for each, factor in zip(samples[1:], factors[1:], strict=True):
            torch._foreach_add_(summed, torch._foreach_mul(each, factor))
        marker = norms.new_zeros(())
        told = {"norms": norms, "clipped_norms": norms * factors}
        return dict(zip(values, summed, strict=True)), dict.fromkeys(values, marker), (), (), told


def _share_inputs(model: nn.Module) -> None:
    """Let queries, keys and values keep one input of their adapters, instead of a copy in fp32 each."""
    for name, module in model.named_modules():
        if name.endswith(("q_proj", "k_proj", "v_proj")) and hasattr(module, "lora_A"):
            module.forward = partial(_in_type_of_input, module)


def _in_type_of_input(layer: Any, x: Tensor) -> Tensor:
    (name,) = layer.active_adapters
    first, second = (part[name].weight.to(x.dtype) for part in (layer.lora_A, layer.lora_B))
    adapted: Tensor = layer.base_layer(x) + F.linear(F.linear(x, first), second) * layer.scaling[name]
    return adapted


TORCH = TrainerInfo(
    "TorchTrainer",
    "vmap",
    is_private=True,
    color="#7f3c8d",
    phases=("backward", "clip", "noise", "optimizer_step"),
    categories=(),
    target="vmap:TorchTrainer",
    options=VmapOptions,
    is_default=False,
)
FOREACH = replace(
    TORCH, name="ForeachTrainer", short_name="foreach", color="#11a579", target="vmap:ForeachTrainer"
)
