"""A module without a rule: per-sample gradients through `torch.func`, sample by sample under `vmap`.

It keeps its inputs, and computes its forward again in backward. Tensors that do not begin with the batch,
masks for example, are the same for every sample.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from dpprof.measure.trainers.per_sample.book import Book
from dpprof.measure.trainers.per_sample.uses import PerSample

Tensors = tuple[Tensor, ...]


def call_any(module: nn.Module, path: str, book: Book, *args: Any, **kwargs: Any) -> Any:
    """What the module gives; in backward it reports its parameters' per-sample gradients.

    Raises ValueError for a tensor that does not begin with the batch and has a gradient.
    """
    call = _Call(module, path, book, (args, kwargs))
    tensors = tensors_of((args, kwargs))
    for tensor in tensors:
        if tensor.requires_grad and not call.is_per_sample(tensor):
            raise ValueError(
                f"{path} is called with a tensor of shape {tuple(tensor.shape)}; per-sample gradients need "
                f"the batch, here {book.batch_size}, as its first dimension"
            )
    book.count(*call.parameters.values())
    outputs = _Function.apply(call, *tensors, *call.parameters.values())
    return call.gave.filled(outputs)


class _AsItIs(nn.Module):
    """Runs a module's own forward, without the hooks that run around this one already."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return type(self.module).forward(self.module, *args, **kwargs)


class _Call:
    """One call: what it was given and what it gave, beside the tensors."""

    def __init__(self, module: nn.Module, path: str, book: Book, args: Any) -> None:
        self.module, self.path, self.book = module, path, book
        self.parameters = {n: p for n, p in module.named_parameters() if p.requires_grad}
        self.given = _Around(args)
        self.gave = _Around(None)
        device = next(iter(self.parameters.values())).device.type
        self._autocast = (device, torch.get_autocast_dtype(device), torch.is_autocast_enabled(device))

    def is_per_sample(self, t: Tensor) -> bool:
        """Whether a tensor begins with the batch."""
        return t.shape[:1] == (self.book.batch_size,)

    def run(self, weights: Tensors, tensors: Tensors) -> Tensors:
        """The tensors that the module gives, under the autocast that there was."""
        args, kwargs = self.given.filled(tensors)
        names = (f"module.{name}" for name in self.parameters)
        named = dict(zip(names, weights, strict=True))
        device, dtype, enabled = self._autocast
        with torch.autocast(device, dtype, enabled, cache_enabled=False):
            out = torch.func.functional_call(_AsItIs(self.module), named, args, kwargs)
        self.gave = _Around(out)
        return tensors_of(out)


class _Around:
    """A tree without its tensors."""

    def __init__(self, tree: Any) -> None:
        leaves, self._spec = tree_flatten(tree)
        self._others = [_TENSOR if isinstance(leaf, Tensor) else leaf for leaf in leaves]

    @property
    def num_tensors(self) -> int:
        """Tensors that it had."""
        return sum(other is _TENSOR for other in self._others)

    def filled(self, tensors: Tensors) -> Any:
        """The tree with these tensors."""
        given = iter(tensors)
        return tree_unflatten([next(given) if o is _TENSOR else o for o in self._others], self._spec)


_TENSOR = object()


def tensors_of(tree: Any) -> Tensors:
    """The tensors of a tree."""
    return tuple(leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor))


class _Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, call: _Call, *tensors: Tensor) -> Tensors:
        ctx.call, ctx.num_inputs = call, call.given.num_tensors
        ctx.save_for_backward(*tensors)
        return call.run(tensors[ctx.num_inputs :], tensors[: ctx.num_inputs])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        call: _Call = ctx.call
        inputs, weights = ctx.saved_tensors[: ctx.num_inputs], ctx.saved_tensors[ctx.num_inputs :]
        wanted = [i for i in range(ctx.num_inputs) if ctx.needs_input_grad[1 + i]]
        of_weights, of_wanted = _per_sample(call, weights, inputs, wanted, gradients)
        of_inputs: list[Tensor | None] = [None] * ctx.num_inputs
        for i, of in zip(wanted, of_wanted, strict=True):
            of_inputs[i] = of
        parameters = call.parameters.values()
        taken = [
            call.book.take(parameter, PerSample(of))
            for parameter, of in zip(parameters, of_weights, strict=True)
        ]
        return None, *of_inputs, *taken


def _per_sample(
    call: _Call, weights: Tensors, inputs: Tensors, wanted: list[int], gradients: Tensors
) -> tuple[Tensors, Tensors]:
    """The gradients of the weights, a sample each, and of the inputs that need one."""

    def of_one(sample: Tensors, gradients: Tensors) -> Any:
        def forward(weights: Tensors, chosen: Tensors) -> Tensors:
            batch = [t.unsqueeze(0) if one else t for t, one in zip(sample, is_one, strict=True)]
            for i, t in zip(wanted, chosen, strict=True):
                batch[i] = t.unsqueeze(0)
            return tuple(t.squeeze(0) for t in call.run(weights, tuple(batch)))

        pull = torch.func.vjp(forward, weights, tuple(sample[i] for i in wanted))[1]
        return pull(gradients)

    is_one = [call.is_per_sample(t) for t in inputs]
    dims = tuple(0 if one else None for one in is_one)
    try:
        found: tuple[Tensors, Tensors] = torch.func.vmap(of_one, in_dims=(dims, 0))(inputs, gradients)
    except RuntimeError as error:
        raise RuntimeError(
            f"{call.path} has no rule for per-sample gradients, and torch.func cannot compute them: {error}"
        ) from error
    return found
