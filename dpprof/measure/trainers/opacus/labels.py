"""Labels the tensors of Opacus's that live and die within its functions, or stay on parameters."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
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
def labelled_samples(observer: Observer, names: Mapping[Tensor, str]) -> Iterator[None]:
    """Label each per-sample gradient when it is computed, and the buffer that it is copied to."""
    function = "create_or_accumulate_grad_sample"
    original = getattr(grad_sample_module, function)

    def create_and_label(*, param: nn.Parameter, grad_sample: Tensor, max_batch_len: int) -> None:
        name = names.get(param, "")
        observer.label("per_sample_gradients", [(name, grad_sample)])
        original(param=param, grad_sample=grad_sample, max_batch_len=max_batch_len)
        buffer = getattr(param, "_current_grad_sample", None)
        if buffer is not None:
            observer.label("per_sample_gradients", [(name, buffer)])

    with (
        patch.object(grad_sample_module, function, create_and_label),
        patch.object(grad_sample_module_fast_gradient_clipping, function, create_and_label),
    ):
        yield


@contextmanager
def labelled_everywhere(observer: Observer, model: nn.Module) -> Iterator[None]:
    """Label the tensors within Opacus's functions, whichever wrapper the model has."""
    names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    with (
        labelled_samples(observer, names),
        labelled_gram_matrices(observer, GradSampleModuleFastGradientClipping),
    ):
        yield


def labelled_gram_matrices(observer: Observer, wrapped: Any) -> AbstractContextManager[Any]:
    """Label the (B, T, T) tensors of a ghost norm, of a wrapped model or of all."""

    def labelling(sampler: Any) -> Any:
        def sample(*given: Any) -> Any:
            with observer.label_new("gram_matrices", lambda s: len(s) == 3 and s[1] == s[2]):
                return sampler(*given)

        return sample

    samplers = {kind: labelling(sampler) for kind, sampler in wrapped.NORM_SAMPLERS.items()}
    return patch.object(wrapped, "NORM_SAMPLERS", samplers)
