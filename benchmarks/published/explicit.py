"""DP-SGD with explicit per-sample gradients, as the baselines of opacus-fusion compute them.

`NAIVE` keeps the per-sample gradients of all layers, clips, and adds up. `REWEIGHT` keeps their norms alone:
a second forward and backward of the weighted losses gives the sum. Both are forms of Opacus 1.2 in
github.com/parkbeomsik/opacus-fusion (6c4959a), which `opacus_fusion.json` has phases and peaks of: weights do
not require gradients in the first pass, and hooks on each layer compute what these need.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dpprof.measure.trainers.base import Held, TrainerBase
from dpprof.vocabulary.settings import setting
from dpprof.vocabulary.trainer_info import OF_FLAT_CLIPPING, TrainerInfo

PerSample = Iterator[tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class ExplicitOptions:
    """Settings of both trainers."""

    first_step: bool = setting(False, "Begin each step without gradients, as the first one does.")
    synchronises: bool = setting(True, "Wait for the GPU after each phase, as the source's profiler does.")


class NaiveTrainer(TrainerBase):
    """Keeps the per-sample gradients of all layers until they are clipped."""

    def wrap_model(self) -> nn.Module:
        """Hook each layer with weights; these require no gradient from here on."""
        self._trained = [p for p in self.model.parameters() if p.requires_grad]
        self._inputs: dict[nn.Module, Tensor] = {}
        self._per_sample: dict[Tensor, Tensor] = {}
        self._summed: dict[Tensor, Tensor] = {}
        # The first layer's output needs a graph: images are multiplied by this.
        self._one = torch.ones(1, device=self.device, requires_grad=True)
        self._stages = ExitStack()
        self._is_hooked = True
        for module in self.model.modules():
            if any(p.requires_grad for p in module.parameters(recurse=False)):
                module.register_forward_hook(self._keep_input)
        self._require_gradients(False)
        return self.model

    @property
    def parameters(self) -> list[nn.Parameter]:
        """Weights that are trained, whether or not they require a gradient now."""
        return self._trained if hasattr(self, "_trained") else super().parameters

    def held_tensors(self) -> Held:
        """Return the tensors held now, with per-sample and summed gradients."""
        names: dict[Tensor, str] = {parameter: name for name, parameter in self.model.named_parameters()}
        held = super().held_tensors()
        held["per_sample_gradients"] = [(names[p], t) for p, t in self._per_sample.items()]
        held["summed_gradients"] = [(names[p], t) for p, t in self._summed.items()]
        return held

    def wrap_optimizer(self, optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
        """Update one tensor after the other, as torch 1.12 did."""
        for group in optimizer.param_groups:
            group["foreach"] = False
        return optimizer

    def compute_outputs(self, inputs: Any) -> Any:
        """Run the model so that gradients reach each layer's output."""
        if isinstance(inputs, Tensor) and inputs.is_floating_point():
            return super().compute_outputs(inputs * self._one)
        trained = set(self._trained)
        for module in self.model.modules():
            if isinstance(module, nn.Embedding) and module.weight in trained:
                module.weight.requires_grad_(True)
        return super().compute_outputs(inputs)

    def step(self, physical_batches: tuple[Any, ...]) -> None:
        """Take one optimizer step on the samples of one physical batch."""
        (batch,) = physical_batches
        with self.phase("zero_grad"):
            self._per_sample.clear()
            self.optimizer.zero_grad(set_to_none=self.options.first_step)
        with self.phase("forward"):
            self.last_loss = self.compute_losses(batch).mean()
        self._enter("backward")
        self.last_loss.backward()
        self._stages.close()
        self.clip(batch)
        with self.phase("noise"):
            for parameter in self._trained:
                summed = self._summed[parameter]
                torch.zeros(summed.shape, device=summed.device)
                deviation = self.noise_multiplier * self.max_grad_norm
                noise = torch.normal(mean=0, std=deviation, size=summed.shape, device=summed.device)
                parameter.grad = (self._summed.pop(parameter) + noise).view_as(parameter)
        with self.phase("clip"):
            for parameter in self._trained:
                assert parameter.grad is not None
                parameter.grad /= self.batch_size
        with self.phase("optimizer_step"):
            self.optimizer.step()

    def clip(self, batch: Any) -> None:
        """Leave the sums of clipped per-sample gradients in `_summed`."""
        with self.phase("clip"):
            norms = [g.reshape(len(g), -1).norm(2, dim=-1) for g in self._per_sample.values()]
            factors = self._factors(norms)
            for parameter, gradients in self._per_sample.items():
                self._summed[parameter] = torch.einsum("i,i...", factors, gradients)

    def took(self, module: nn.Module, found: PerSample) -> None:
        """Keep the per-sample gradients of a layer."""
        self._per_sample.update(found)

    def _factors(self, norms: list[Tensor]) -> Tensor:
        of_samples: Tensor = torch.stack(norms, dim=1).norm(2, dim=1)
        return (self.max_grad_norm / (of_samples + 1e-6)).clamp(max=1.0)

    def _require_gradients(self, are_required: bool) -> None:
        for parameter in self._trained:
            parameter.requires_grad_(are_required)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Mark a phase, and wait for its end."""
        with super().phase(name):
            yield
            if self.options.synchronises and self.device_type == "cuda":
                torch.cuda.synchronize()

    def _enter(self, phase: str) -> None:
        """Go from one phase of backward to another."""
        self._stages.close()
        self._stages.enter_context(self.phase(phase))

    def _keep_input(self, module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        if not self._is_hooked:
            return
        assert output.grad_fn is not None
        self._inputs[module] = inputs[0].detach()
        output.grad_fn.register_hook(partial(self._went_back, module))

    def _went_back(self, module: nn.Module, _: Any, of_outputs: tuple[Tensor, ...]) -> None:
        self._enter("per_sample_gradients")
        given = self._inputs.pop(module)
        with torch.no_grad():
            rule = next(rule for kind, rule in _RULES.items() if isinstance(module, kind))
            self.took(module, rule(module, given, of_outputs[0].detach() * len(given)))
        self._enter("backward")


class ReweightTrainer(NaiveTrainer):
    """Keeps the norms of per-sample gradients, and goes forward and backward once more."""

    def took(self, module: nn.Module, found: PerSample) -> None:
        """Keep the norms of a layer's per-sample gradients."""
        gradients = dict(found)
        self._enter("norms")
        for parameter, each in gradients.items():
            self._norms[parameter] = each.norm(2, dim=list(range(1, each.dim())))

    def step(self, physical_batches: tuple[Any, ...]) -> None:
        """Take one optimizer step on the samples of one physical batch."""
        self._norms: dict[Tensor, Tensor] = {}
        super().step(physical_batches)

    def clip(self, batch: Any) -> None:
        """Leave the gradients of the weighted losses in `_summed`."""
        with self.phase("clip"):
            factors = self._factors(list(self._norms.values()))
            self._is_hooked = False
            self._require_gradients(True)
        with self.phase("second_forward"):
            weighted = (self.compute_losses(batch) * factors).sum()
        with self.phase("clip"):
            weighted.backward()
            self._is_hooked = True
            self._require_gradients(False)
            for parameter in self._trained:
                assert parameter.grad is not None
                self._summed[parameter], parameter.grad = parameter.grad, None


def _of_linear(layer: nn.Linear, given: Tensor, of_output: Tensor) -> PerSample:
    yield layer.weight, torch.einsum("n...i,n...j->nij", of_output, given)
    if layer.bias is not None:
        yield layer.bias, torch.einsum("n...k->nk", of_output)


def _of_convolution(layer: nn.Conv2d, given: Tensor, of_output: Tensor) -> PerSample:
    patches = _unfolded(given, layer)
    of_output = of_output.reshape(len(given), -1, patches.shape[-1])
    gradients = torch.einsum("noq,npq->nop", of_output, patches)
    yield layer.weight, gradients.view(len(given), *layer.weight.shape)
    if layer.bias is not None:
        yield layer.bias, of_output.sum(dim=2)


def _unfolded(images: Tensor, layer: nn.Conv2d) -> Tensor:
    """Return the patches that a filter sees, shape (B, channels * filter, positions)."""
    (rows, columns), (down, right) = layer.kernel_size, layer.stride
    padding: Any = layer.padding
    padded = F.pad(images, (padding[1], padding[1], padding[0], padding[0]))
    samples, channels, height, width = padded.shape
    shape = (height - rows) // down + 1, (width - columns) // right + 1
    *outer, row, column = padded.stride()
    strides = (*outer, row, column, row * down, column * right)
    patches = padded.as_strided((samples, channels, rows, columns, *shape), strides)
    return patches.reshape(samples, -1, shape[0] * shape[1])


def _of_group_norm(layer: nn.GroupNorm, given: Tensor, of_output: Tensor) -> PerSample:
    normal = F.group_norm(given, layer.num_groups, eps=layer.eps)
    yield layer.weight, torch.einsum("ni...->ni", normal * of_output)
    yield layer.bias, torch.einsum("ni...->ni", of_output)


def _of_layer_norm(layer: nn.LayerNorm, given: Tensor, of_output: Tensor) -> PerSample:
    normal = F.layer_norm(given, layer.normalized_shape, eps=layer.eps)
    yield layer.weight, torch.einsum("n...i->ni", normal * of_output)
    yield layer.bias, torch.einsum("n...i->ni", of_output)


def _of_embedding(layer: nn.Embedding, given: Tensor, of_output: Tensor) -> PerSample:
    width = layer.embedding_dim
    rows = given.unsqueeze(-1).expand(*given.shape, width).reshape(len(given), -1, width)
    gradients = torch.zeros(len(given), *layer.weight.shape, device=given.device)
    yield layer.weight, gradients.scatter_add_(1, rows, of_output.reshape(len(given), -1, width))


_RULES: dict[type[nn.Module], Callable[..., PerSample]] = {
    nn.Linear: _of_linear,
    nn.Conv2d: _of_convolution,
    nn.GroupNorm: _of_group_norm,
    nn.LayerNorm: _of_layer_norm,
    nn.Embedding: _of_embedding,
}
_PHASES = (
    "zero_grad",
    "forward",
    "backward",
    "per_sample_gradients",
    "norms",
    "clip",
    "second_forward",
    "noise",
    "optimizer_step",
)
NAIVE = TrainerInfo(
    "NaiveTrainer",
    "naive",
    is_private=True,
    color="#7f3c8d",
    phases=tuple(phase for phase in _PHASES if phase not in ("norms", "second_forward")),
    categories=OF_FLAT_CLIPPING,
    target="explicit:NaiveTrainer",
    options=ExplicitOptions,
    is_default=False,
    unaccounted="",
)
REWEIGHT = TrainerInfo(
    "ReweightTrainer",
    "reweight",
    is_private=True,
    color="#11a579",
    phases=_PHASES,
    categories=OF_FLAT_CLIPPING,
    target="explicit:ReweightTrainer",
    options=ExplicitOptions,
    is_default=False,
    unaccounted="",
)
