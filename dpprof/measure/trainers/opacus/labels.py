"""Labels the tensors of Opacus's that live and die within its functions, or stay on parameters."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from opacus.grad_sample import (
    GradSampleModuleFastGradientClipping,
    grad_sample_module,
    grad_sample_module_fast_gradient_clipping,
)
from torch import Tensor, nn

from dpprof.measure.observe import Observer
from dpprof.measure.trainers.base import Held
from dpprof.measure.trainers.nested import attributes

# Attributes of parameters where Opacus keeps tensors, by category.
_KEPT_UNDER = {
    "per_sample_gradients": "grad_sample",
    "gradient_norms": "_norm_sample",
    "summed_gradients": "summed_grad",
}


def kept_by_opacus(model: nn.Module, wrapped: nn.Module) -> Held:
    """Return the tensors that Opacus keeps on a model's parameters and on its wrapper, by category."""
    kept = {category: attributes(model, name) for category, name in _KEPT_UNDER.items()}
    norms = getattr(wrapped, "_per_sample_gradient_norms", None)  # fast gradient clipping's
    if norms is not None:
        kept["gradient_norms"].append(("all parameters", norms))
    return {category: tensors for category, tensors in kept.items() if tensors}


@contextmanager
def labelled_within(
    observer: Observer, model: nn.Module, wrapped: Any = GradSampleModuleFastGradientClipping
) -> Iterator[None]:
    """Label the tensors within Opacus's functions, with `wrapped` around the model, by default with any.

    They are each per-sample gradient, the buffer that it is copied to, and the (B, T, T) tensors of a ghost
    norm.
    """
    names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    function = "create_or_accumulate_grad_sample"
    original = getattr(grad_sample_module, function)

    def create_and_label(*, param: nn.Parameter, grad_sample: Tensor, max_batch_len: int) -> None:
        name = names.get(param, "")
        observer.label("per_sample_gradients", [(name, grad_sample)])
        original(param=param, grad_sample=grad_sample, max_batch_len=max_batch_len)
        buffer = getattr(param, "_current_grad_sample", None)
        if buffer is not None:
            observer.label("per_sample_gradients", [(name, buffer)])

    def labelling(sampler: Any) -> Any:
        def sample(*given: Any) -> Any:
            with observer.label_new("gram_matrices", lambda s: len(s) == 3 and s[1] == s[2]):
                return sampler(*given)

        return sample

    of_norms = getattr(wrapped, "NORM_SAMPLERS", {})  # none with flat clipping
    samplers = {kind: labelling(sampler) for kind, sampler in of_norms.items()}
    with (
        patch.object(grad_sample_module, function, create_and_label),
        patch.object(grad_sample_module_fast_gradient_clipping, function, create_and_label),
        patch.object(wrapped, "NORM_SAMPLERS", samplers, create=True),
    ):
        yield
