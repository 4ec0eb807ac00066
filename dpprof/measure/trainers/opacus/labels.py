"""Labels tensors that live and die inside Opacus's functions, for an observer that follows tensors.

Opacus's functions are wrapped only while such an observer watches; timed steps run Opacus untouched.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from opacus.grad_sample import grad_sample_module, grad_sample_module_fast_gradient_clipping
from torch import Tensor, nn

from dpprof.measure.observe import Observer
from dpprof.measure.trainers.replaced import replaced


@contextmanager
def label_per_sample_gradients(observer: Observer, names: dict[nn.Parameter, str]) -> Iterator[None]:
    """Label each per-sample gradient as it is computed, and the buffer that it is then copied to.

    With flat clipping the trainer holds the buffers later on; with fast gradient clipping nothing is left
    of either when backward ends.
    """
    original = grad_sample_module.create_or_accumulate_grad_sample

    def create_and_label(*, param: nn.Parameter, grad_sample: Tensor, max_batch_len: int) -> None:
        name = names.get(param, "")
        observer.label("per_sample_gradients", [(name, grad_sample)])
        original(param=param, grad_sample=grad_sample, max_batch_len=max_batch_len)
        buffer = getattr(param, "_current_grad_sample", None)
        if buffer is not None:
            observer.label("per_sample_gradients", [(name, buffer)])

    function = "create_or_accumulate_grad_sample"
    with (
        replaced(grad_sample_module, function, create_and_label),
        replaced(grad_sample_module_fast_gradient_clipping, function, create_and_label),
    ):
        yield


@contextmanager
def label_gram_matrices(observer: Observer, model: nn.Module) -> Iterator[None]:
    """Label the (B, T, T) tensors that a ghost norm makes as Gram matrices."""

    def labelling(sampler: Any) -> Any:
        def sample(module: nn.Module, activations: list[Tensor], backprops: Tensor) -> Any:
            with observer.label_new("gram_matrices", _is_gram_matrix):
                return sampler(module, activations, backprops)

        return sample

    samplers = {kind: labelling(sampler) for kind, sampler in model.NORM_SAMPLERS.items()}  # type: ignore
    with replaced(model, "NORM_SAMPLERS", samplers):
        yield


def _is_gram_matrix(shape: torch.Size) -> bool:
    return len(shape) == 3 and shape[1] == shape[2]
