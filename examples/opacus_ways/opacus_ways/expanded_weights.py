"""DP-SGD whose per-sample gradients come from torch's expanded weights."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from opacus.grad_sample import GradSampleModuleExpandedWeights
from torch import Tensor, nn
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.nn.utils._expanded_weights import expanded_weights_utils
from torch.nn.utils._expanded_weights.expanded_weights_impl import ExpandedWeight

from dpprof.measure.observe import Observer
from dpprof.measure.trainers.opacus.dpsgd import DPSGDTrainer
from dpprof.measure.trainers.opacus.foreseen import mixed_samples
from dpprof.measure.trainers.watched_step import Trap, WatchedStep
from opacus_ways.expanded_traps import diagnose_expanded


class DPExpandedWeightsTrainer(DPSGDTrainer):
    """Flat clipping with `grad_sample_mode="ew"`, on torch's `ExpandedWeight`s.

    Their backward rules compute per-sample gradients, and no other gradient of a weight.
    """

    def wrap_model(self) -> nn.Module:
        """Call the model with expanded weights in place of its parameters."""
        wrapped: nn.Module = GradSampleModuleExpandedWeights(self.model)
        return wrapped

    @classmethod
    def explain(cls, error: Exception, model: nn.Module, batch_size: int) -> str | None:
        """Explain a limit of expanded weights."""
        return diagnose_expanded(error, model, batch_size)

    @classmethod
    def foresee(cls, step: WatchedStep) -> list[Trap]:
        """Return only warnings: the limits of Opacus's hooks are not those of expanded weights."""
        return [Trap("silent", text, "", is_warning=True) for text in mixed_samples(step.model)]

    def warnings(self) -> list[str]:
        """Warn about batch norms without trainable parameters."""
        return self.unbounded()

    def unbounded(self) -> list[str]:
        """Return the warnings: such a batch norm leaves no guarantee."""
        return list(mixed_samples(self.model))

    @classmethod
    @contextmanager
    def on_fake_tensors(cls) -> Iterator[None]:
        """Make expanded weights of parameters without data, as fake parameters are refused."""
        with (
            super().on_fake_tensors(),
            patch.object(ExpandedWeight, "__new__", staticmethod(_expanded_on_meta)),
        ):
            yield

    @contextmanager
    def label_transient_tensors(self) -> Iterator[None]:
        """Label per-sample gradients, before and after they are multiplied by the batch size."""
        names = {parameter: name for name, parameter in self.model.named_parameters()}
        with super().label_transient_tensors(), _label_contributions(self.observer, names):
            yield


@contextmanager
def _label_contributions(observer: Observer, names: dict[nn.Parameter, str]) -> Iterator[None]:
    original = expanded_weights_utils.maybe_scale_by_batch_size

    def scale_and_label(grad_sample: Tensor, expanded_weight: Tensor) -> Tensor:
        name = names.get(expanded_weight.orig_weight, "")  # type: ignore[attr-defined]
        observer.label("per_sample_gradients", [(name, grad_sample)])
        scaled: Tensor = original(grad_sample, expanded_weight)
        observer.label("per_sample_gradients", [(name, scaled)])
        return scaled

    with patch.object(expanded_weights_utils, "maybe_scale_by_batch_size", scale_and_label):
        yield


def _expanded_on_meta(cls: Any, weight: Tensor, *_: Any) -> Any:
    """Torch computes with the data of the original weight, never with its own."""
    with unset_fake_temporarily():
        on_meta = torch.empty(weight.shape, dtype=weight.dtype, device="meta")
        return torch.Tensor._make_subclass(cls, on_meta, True)
