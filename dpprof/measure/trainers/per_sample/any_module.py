"""Modules without a rule: per-sample gradients through `torch.func`, with `vmap` over samples.

Backward repeats forward on the inputs, which are kept. Tensors that do not begin with the batch, such as
masks, are the same for every sample. With dropout, forward too uses `vmap`, so that draws can be repeated.
"""

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any, NoReturn
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.nn.utils.prune import BasePruningMethod
from torch.nn.utils.weight_norm import WeightNorm
from torch.utils._pytree import TreeSpec, tree_flatten, tree_leaves, tree_unflatten

from dpprof.errors import WorkloadError
from dpprof.measure.observe import Observer
from dpprof.measure.trainers.base import TrainerBase
from dpprof.measure.trainers.draws import attention_alike, drawn_again, dropouts, state_of
from dpprof.measure.trainers.nested import named_leaves
from dpprof.measure.trainers.per_sample.book import Book
from dpprof.measure.trainers.per_sample.uses import PerSample, in_rows
from dpprof.measure.trainers.trial_batch import run_without_side_effects
from dpprof.measure.workloads.factory import first_line
from dpprof.vocabulary.formats import listed
from dpprof.vocabulary.messages import is_oom

Tensors = tuple[Tensor, ...]


def call_any(module: nn.Module, path: str, book: Book, *args: Any, **kwargs: Any) -> Any:
    """Run the module; its backward reports its parameters' per-sample gradients.

    Raises WorkloadError for gradients of tensors without batch dimension, or past the module's arguments.
    """
    named = named_leaves((args, kwargs))
    tensors = tuple(tensor for _, tensor in named)
    has_samples = [book.begins_with_batch(tensor, path, name) for name, tensor in named]
    call = _Call(module, path, book, (args, kwargs), has_samples)
    for tensor, is_one in zip(tensors, has_samples, strict=True):
        if tensor.requires_grad and not is_one:
            call.refuse_without_batch("is called with", tensor)
    book.count(path, *call.parameters.values())
    outputs = _Function.apply(call, *tensors, *call.parameters.values())
    if book.noted_calls is not None:
        inputs, given = (tuple(t.detach().clone() for t in each) for each in (tensors, outputs))
        book.noted_calls.append((call, inputs, given))  # copies: the model may change them in place
    return _filled(call.gave, outputs)


class _AsItIs(nn.Module):
    """Runs a module's own forward, without the hooks around it, which run already."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        with _weights_of_hooks(self.module):
            return type(self.module).forward(self.module, *args, **kwargs)


@contextmanager
def _weights_of_hooks(module: nn.Module) -> Iterator[None]:
    """Recompute weights that hooks derive from parameters, so that these get their gradients."""
    with ExitStack() as stack:
        for hook in module._forward_pre_hooks.values():
            if isinstance(hook, WeightNorm | BasePruningMethod):
                name = hook.name if isinstance(hook, WeightNorm) else hook._tensor_name
                stack.enter_context(patch.object(module, name, vars(module)[name]))
                hook(module, ())
        yield


class _Call:
    """One call of a module: everything about its inputs and outputs but the tensors."""

    def __init__(self, module: nn.Module, path: str, book: Book, args: Any, has_samples: list[bool]) -> None:
        self.module, self.path, self.book, self.has_samples = module, path, book, has_samples
        self.parameters = {n: p for n, p in module.named_parameters() if p.requires_grad}
        self.given, self.gave = _without_tensors(args), _without_tensors(None)
        self.has_gradient: list[bool] = []  # which tensors that it gives can have one
        self.is_grad_enabled = torch.is_grad_enabled()
        self.device = next(iter(self.parameters.values())).device
        kind = self.device.type
        self._autocast = (kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind))
        has_dropout = any(each.training for each, _ in dropouts(module))
        self.drawn_from = state_of(self.device) if has_dropout else None

    def same_draws(self) -> AbstractContextManager[Any]:
        """Repeat the random numbers of the first run."""
        return nullcontext() if self.drawn_from is None else drawn_again(self.device, self.drawn_from)

    def rounding_of(self, output: Tensor) -> float:
        """Return the relative rounding of an output's computation; on CUDA it may use TF32."""
        _, short, is_short = self._autocast
        rounding = torch.finfo(short if is_short and output.dtype != torch.float64 else output.dtype).eps
        is_tf32 = self.device.type == "cuda" and output.dtype == torch.float32
        return max(rounding, 2**-10) if is_tf32 else rounding

    def refuse_without_batch(self, does: str, tensor: Tensor) -> NoReturn:
        raise WorkloadError(
            f"{self.path} {does} a tensor of shape {tuple(tensor.shape)}, whose first dimension is not the "
            f"batch, here {self.book.batch_size}: give each sample its own"
        )

    def versions(self) -> dict[str, tuple[Tensor, int]]:
        """Return each buffer with its count of in-place changes."""
        return {name: (buffer, buffer._version) for name, buffer in self.module.named_buffers()}

    def refuse_changed(self, versions: dict[str, tuple[Tensor, int]]) -> None:
        """Raise WorkloadError if a buffer has changed: backward would compute with another one."""
        for name, (buffer, version) in self.versions().items():
            before, of_before = versions.get(name, (buffer, version))
            if buffer is not before or version != of_before:
                raise WorkloadError(f"{self.path} changes its buffer {name} in forward: train without that")

    def run(self, weights: Tensors, tensors: Tensors, size: int) -> Tensors:
        """Run the module on so many samples, under the autocast of the first run; return its tensors."""
        args, kwargs = _filled(self.given, tensors)
        names = (f"module.{name}" for name in self.parameters)
        named = dict(zip(names, weights, strict=True))
        kind, dtype, enabled = self._autocast
        autocast = torch.autocast(kind, dtype, enabled, cache_enabled=False)
        alike = nullcontext() if self.drawn_from is None else attention_alike()
        as_classes = patch.object(self.book, "is_open", False)  # modules below compute as usual
        with autocast, alike, as_classes:
            out = torch.func.functional_call(_AsItIs(self.module), named, args, kwargs)
        self.refuse_filled(tensors, args, kwargs)
        self.gave = _without_tensors(out)
        outputs = tuple(t for t in tree_leaves(out) if isinstance(t, Tensor))
        self.has_gradient = [t.is_floating_point() or t.is_complex() for t in outputs]
        for tensor in self.with_gradient(outputs):
            if tensor.shape[:1] != (size,):
                self.refuse_without_batch("gives", tensor)
        return outputs

    def refuse_filled(self, tensors: Tensors, args: Any, kwargs: Any) -> None:
        """Raise WorkloadError if the module changed a list or dict among its arguments, which is a copy."""
        before, now = tree_flatten(_filled(self.given, tensors)), tree_flatten((args, kwargs))
        if before[1] != now[1] or any(one is not other for one, other in zip(before[0], now[0], strict=True)):
            raise WorkloadError(f"{self.path} changes a list or dict among its arguments: return it instead")

    def with_gradient(self, outputs: Tensors) -> Tensors:
        """Select the outputs that can have a gradient, or what belongs to them."""
        return tuple(t for t, has_one in zip(outputs, self.has_gradient, strict=True) if has_one)

    def refuse_foreign(self, outputs: Tensors) -> None:
        """Raise WorkloadError for outputs whose graph has parameters: all its tensors were detached."""
        names, seen, waiting = set(), set(), [t.grad_fn for t in outputs]
        while waiting:
            node = waiting.pop()
            if node is not None and node not in seen:
                seen.add(node)
                names.add(self.book.names.get(getattr(node, "variable", None)))  # type: ignore[arg-type]
                waiting += [following for following, _ in node.next_functions]
        if found := sorted(name for name in names if name):
            raise WorkloadError(
                f"{self.path} computes with a tensor that is neither its argument nor its parameter, so that "
                f"{listed(found)} would get no gradient: make it an argument or a parameter of its own"
            )

    def cut_off(self, tensor: Tensor, *, has_gradient: bool) -> Tensor:
        """Detach a tensor. If a gradient reaches it, that has bypassed the outputs and is refused."""
        cut = tensor.detach()
        if self.is_grad_enabled and has_gradient:
            cut.requires_grad_().register_hook(self.refuse_past)
        return cut

    def refuse_past(self, gradient: Tensor) -> NoReturn:
        """Raise WorkloadError for a gradient that bypassed the module's outputs."""
        raise WorkloadError(
            f"{self.path} hands out a tensor past its outputs, by an attribute, a hook, or an object that is "
            "no container: return that tensor, or detach it"
        )


_TENSOR = object()


def _without_tensors(tree: Any) -> tuple[list[Any], TreeSpec]:
    leaves, spec = tree_flatten(tree)
    return [_TENSOR if isinstance(leaf, Tensor) else leaf for leaf in leaves], spec


def _filled(without: tuple[list[Any], TreeSpec], tensors: Tensors) -> Any:
    """Fill these tensors into a nested structure without its own."""
    given = iter(tensors)
    return tree_unflatten([next(given) if leaf is _TENSOR else leaf for leaf in without[0]], without[1])


class _Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, call: _Call, *tensors: Tensor) -> Tensors:
        ctx.call, num_inputs = call, len(call.has_samples)
        ctx.wanted = [i for i in range(num_inputs) if ctx.needs_input_grad[1 + i]]
        ctx.save_for_backward(*tensors)
        needed = ctx.needs_input_grad[1:]
        cut = [call.cut_off(t, has_gradient=has_one) for t, has_one in zip(tensors, needed, strict=True)]
        inputs, weights, versions = tuple(cut[:num_inputs]), tuple(cut[num_inputs:]), call.versions()
        with torch.set_grad_enabled(call.is_grad_enabled):
            if call.drawn_from is None:
                outputs = _whole_batch(call, weights, inputs)
            else:
                outputs = _sample_by_sample(call, weights, inputs, ctx.wanted)
        call.refuse_foreign(outputs)
        call.refuse_changed(versions)
        return tuple(t.detach() for t in outputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        call: _Call = ctx.call
        saved, num_inputs = ctx.saved_tensors, len(call.has_samples)
        with call.same_draws():
            of_weights, of_wanted = _sample_by_sample(
                call, saved[num_inputs:], saved[:num_inputs], ctx.wanted, call.with_gradient(gradients)
            )
        of_inputs = dict(zip(ctx.wanted, of_wanted, strict=True))
        pairs = zip(call.parameters.values(), of_weights, strict=True)
        taken = [call.book.take(parameter, PerSample(of)) for parameter, of in pairs]
        return None, *map(of_inputs.get, range(num_inputs)), *taken


def _whole_batch(call: _Call, weights: Tensors, inputs: Tensors) -> Tensors:
    try:
        return call.run(weights, inputs, call.book.batch_size)
    except RuntimeError as error:
        if "in-place operation" not in str(error):
            raise
        raise WorkloadError(
            f"{call.path} changes its argument or parameter in place: copy it first"
        ) from error


def _sample_by_sample(
    call: _Call, weights: Tensors, inputs: Tensors, wanted: list[int], gradients: Tensors | None = None
) -> Any:
    """Run the module under `vmap`; given `gradients`, return those of the weights and the wanted inputs."""

    def of_one(sample: Tensors, gradients: Tensors | None) -> Any:
        def forward(weights: Tensors, chosen: Tensors) -> Tensors:
            batch = [t.unsqueeze(0) if one else t for t, one in zip(sample, call.has_samples, strict=True)]
            for i, t in zip(wanted, chosen, strict=True):
                batch[i] = t.unsqueeze(0)
            return tuple(t.squeeze(0) for t in call.run(weights, tuple(batch), 1))

        def differentiated(weights: Tensors, chosen: Tensors) -> Tensors:
            return call.with_gradient(forward(weights, chosen))

        chosen = tuple(sample[i] for i in wanted)
        if gradients is None:
            return forward(weights, chosen)
        return torch.func.vjp(differentiated, weights, chosen)[1](gradients)

    dims = (tuple(0 if one else None for one in call.has_samples), None if gradients is None else 0)
    randomness = "error" if call.drawn_from is None else "different"
    try:
        return torch.func.vmap(of_one, dims, randomness=randomness)(inputs, gradients)
    except (RuntimeError, ValueError, LookupError, TypeError) as error:
        if is_oom(error):
            raise
        said = first_line(error).partition(". ")[0]
        remedy = "draw by nn.Dropout" if "randomness" in said else "build it of layers that have rules"
        raise WorkloadError(
            f"{call.path} has no rule for per-sample gradients, and torch.func cannot compute them ({said}): "
            f"{remedy}, or freeze it"
        ) from error


def refuse_other_numbers(trainer: TrainerBase, book: Book, inputs: Any, batch_size: int) -> None:
    """Raise WorkloadError for a module whose forward gives other results when backward repeats it."""
    book.open(batch_size, Observer(), trainer.balance)
    calls: list[tuple[_Call, Tensors, Tensors]] = []
    book.noted_calls = calls
    try:
        run_without_side_effects(trainer, inputs, with_gradients=True)
    except Exception as error:  # the step will tell
        if is_oom(error):
            raise
        return
    finally:
        book.noted_calls = None
        book.shut()
    while calls:
        _refuse_other_outputs(*calls.pop())


@torch.no_grad()
def _refuse_other_outputs(call: _Call, inputs: Tensors, outputs: Tensors) -> None:
    weights = tuple(call.parameters.values())
    try:
        with call.same_draws():
            found: Tensors = _sample_by_sample(call, weights, inputs, [])
    except WorkloadError:  # the step will tell, if it needs the gradient
        return
    except Exception as error:
        if is_oom(error):
            raise
        raise _other_numbers(call.path) from error
    for one, other in zip(outputs, found, strict=True):
        if one.is_floating_point() and not _are_alike(one, other, call.rounding_of(one)):
            raise _other_numbers(call.path)


def _are_alike(one: Tensor, other: Tensor, rounding: float) -> bool:
    """Compare the samples of two outputs, (B, ...), up to the rounding of a long computation."""
    one, other = (in_rows(t).to(torch.promote_types(t.dtype, torch.float32)) for t in (one, other))
    largest = one.norm(dim=1).max()
    difference = (one - other).norm(dim=1).max()
    return not largest.isfinite() or bool(difference <= math.sqrt(rounding) * largest)


def _other_numbers(path: str) -> WorkloadError:
    return WorkloadError(
        f"{path} gives other numbers when backward runs its forward again, sample by sample: it mixes "
        "samples, or reads what changes between calls. Pass it that as a tensor with a row for each sample"
    )
