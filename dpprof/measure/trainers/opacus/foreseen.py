"""Limits of Opacus that a model meets, with the module at fault, which Opacus's own errors do not tell."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from opacus.grad_sample import GradSampleModule, GradSampleModuleFastGradientClipping
from opacus.layers.dp_rnn import DPGRU, DPLSTM, DPRNN
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from dpprof.measure.trainers.gradient_hooks import gradient_hooks
from dpprof.measure.trainers.parallel import kind_of
from dpprof.measure.trainers.watched_step import Call, Trap, WatchedStep
from dpprof.vocabulary.formats import listed
from dpprof.vocabulary.grouping import grouped

# Errors, by trap. docs/troubleshooting.md quotes these, with names in capitals.
SENTENCES = {
    "ids": "{module} gets ids whose first dimension is {length}, not the batch's {batch_size}: "
    "give them the batch dimension, ids.expand(B, T).contiguous()",
    "inputs": "{module} gets an input whose first dimension is {length}, not the batch's {batch_size}: "
    "keep the samples in the first dimension of every module's input",
    "shared": "{module} gets an input of {length} rows in a batch of {samples} samples too: Opacus would "
    "take these rows for samples. Keep the samples in the first dimension of every module's input",
    "unused": "no per-sample gradient for {parameters}: their module is not called on the way to the loss; "
    "call it there, remove it, or set requires_grad=False",
    "dimensions": "{module} gets an input of neither 2 nor 3 dimensions, and Ghost Clipping takes no other "
    "in nn.Linear: flatten it to (B, T, D) before, or use another trainer",
    "norm_bias": "{module}: Opacus needs the bias of nn.LayerNorm: leave bias=False out, or use nn.RMSNorm",
    "in_place": "{module} changes a module's output in place ({where}), which Opacus's hooks do not allow: "
    "write x = x + y for x += y, relu(x) for relu_(x), and leave inplace=True out",
    "in_place_module": "{module} changes a module's output in place, which Opacus's hooks do not allow: "
    "make it with inplace=False",
    "bag": "{module}: Opacus takes nn.EmbeddingBag only with flat ids and offsets: use nn.Embedding, and sum "
    "or average over the tokens",
    "bag_on_fakes": "{module}: Opacus reads the offsets of nn.EmbeddingBag, and fake tensors have no data: "
    "measure it, or use nn.Embedding and sum or average over the tokens",
    "recurrent": "{module}: Opacus has no per-sample gradients for nn.{kind}: use opacus.layers.DP{kind}",
    "attention": "{module}: Opacus has no per-sample gradients for nn.MultiheadAttention: use "
    "opacus.layers.DPMultiheadAttention, or nn.Linear and scaled_dot_product_attention",
    "several_inputs": "{module} takes several inputs, but Opacus, which has no grad sampler for it, gives it "
    "the first alone: move its own parameters ({parameters}) into a module with one input",
    "keywords": "{module} is called with keyword arguments, which Opacus's hooks do not get: pass its input "
    "by position",
    "random": "{module} draws random numbers, as dropout does, and Opacus, which has no grad sampler for it, "
    "runs it under functorch, where that fails: move its own parameters ({parameters}) into a module without "
    "dropout, or set the probability to 0",
    "recomputed": "{module} is called again in backward, by activation checkpointing without re-entry, and "
    "Opacus takes that for another call: give torch.utils.checkpoint.checkpoint use_reentrant=True",
    "tied": "{modules} share {parameter}, which Ghost Clipping does not support: give each a parameter of "
    "its own, or use flat or fast",
    "reused": "{module} is called more than once in a forward, which Ghost Clipping does not support: give "
    "each call a module of its own, or use flat or fast",
    "batch_norm": "{module}: nn.{kind} mixes the samples of a batch, so that no sample has a gradient of its "
    "own: use nn.GroupNorm",
    "running_statistics": "{module}: Opacus does not support the running statistics of nn.{kind}: make it "
    "with track_running_stats=False",
    "complex": "{parameter} is complex, and Opacus's noise for each of its real numbers has 0.71 times the "
    "standard deviation that is asked for: make it a real parameter with a last dimension of 2, take "
    "torch.view_as_complex of it in forward, or train with bk or mixed",
    "gradient_hook": "{parameter} has a hook ({method}) that changes the gradient or the weight, and the "
    "per-sample gradients that Opacus clips do not go through it: the change would be lost, or not be "
    "clipped. Remove the hook, and change the loss or the forward instead",
    "buffers": "{module} holds trainable parameters beside buffers ({buffers}), which Opacus does not "
    "support: move one or the other into a module of its own",
    "channels_last": "{module} gets images whose channels are stored last (torch.channels_last), and Opacus "
    "reads them as if rows came last: its gradient would be wrong. Leave channels_last out, or train with bk "
    "or mixed",
    "not_contiguous": "{module} gets ids that are not contiguous, and Ghost Clipping needs contiguous ones: "
    "call .contiguous() on them, as in ids.expand(B, T).contiguous()",
}
# Warnings about a model that trains nevertheless.
WARNINGS = {
    "raw": "{module} holds parameters of its own ({parameters}) beside modules, so that Opacus runs all of "
    "it under functorch: the gradients are right, but the cost differs; move them into a module of their own",
    "functorch": "{modules}: Opacus has no grad sampler for {kind} and runs it under functorch, so that "
    "Ghost Clipping, too, keeps its per-sample gradients: a layer that it has one for avoids that",
    "bag_max": '{module}: Opacus takes per-sample gradients of nn.EmbeddingBag(mode="max") to be zero, so '
    "that its clipping is wrong: use nn.Embedding, and the maximum over the tokens",
    "gradient_hook": "{parameters}: Opacus calls the hooks ({method}) with gradients of the whole batch "
    "before it adds noise, twice in a step with ghost and fast: nothing that they keep or print is private",
    "mixing": "{module}: nn.{kind} mixes the samples of a batch, so that clipping does not bound what one "
    "sample changes: use nn.GroupNorm",
}

# Their output is a tuple, which no hook of Opacus takes.
TUPLES = (nn.LSTM, nn.GRU, nn.RNN, nn.MultiheadAttention)
_RECURRENT = (DPRNN, DPLSTM, DPGRU)
# Opacus descends only into these types. nn.MultiheadAttention fails, with its own sentence.
_LOOKED_INTO = {*GradSampleModule.GRAD_SAMPLERS, *_RECURRENT, nn.MultiheadAttention}
_NORM_SAMPLERS = GradSampleModuleFastGradientClipping.NORM_SAMPLERS


@dataclass(frozen=True)
class Foreseen:
    """Opacus's limits in a watched step."""

    step: WatchedStep

    @cached_property
    def _hooked(self) -> list[nn.Module]:
        """Modules that Opacus hooks, each once."""
        return list(dict.fromkeys(hooked(self.step.model)))

    @cached_property
    def _calls(self) -> list[Call]:
        hooked = set(self._hooked)
        return [call for call in self.step.calls if call.module in hooked]

    @cached_property
    def _under_functorch(self) -> list[nn.Module]:
        """Hooked modules without a grad sampler that Opacus does not refuse for another reason."""
        return [
            m
            for m in self._hooked
            if type(m) not in GradSampleModule.GRAD_SAMPLERS
            and not isinstance(m, TUPLES)
            and not any(True for _ in m.buffers())
        ]

    def _trap(self, name: str, module: nn.Module | None, **words: object) -> Trap:
        path = "" if module is None else self.step.path(module)
        return Trap(name, SENTENCES[name].format(module=path, **words), path)

    def traps(self, *, is_ghost: bool) -> Iterator[Trap]:
        """Yield the traps of flat and Fast Gradient Clipping, then those of Ghost Clipping if asked."""
        yield from self._buffers()
        yield from self._batch_dimension()
        yield from self._in_place()
        yield from self._tuple_of_outputs()
        yield from self._inputs()
        yield from self._random()
        yield from self._recomputed()
        yield from self._unused()
        yield from self._norm_bias()
        yield from self._embedding_bag()
        yield from self._channels_last()
        if is_ghost:
            yield from self._called_twice()
            yield from self._not_contiguous()
            yield from self._dimensions()

    def _batch_dimension(self) -> Iterator[Trap]:
        batch_size = self.step.batch_size
        for call in self._calls:
            if isinstance(call.module, (*TUPLES, nn.EmbeddingBag)) or not call.shapes:
                continue
            length = (*call.shapes[0], 0)[0]
            if length != batch_size:
                name = "ids" if isinstance(call.module, nn.Embedding) else "inputs"
                yield self._trap(name, call.module, length=length, batch_size=batch_size)

    def _unused(self) -> Iterator[Trap]:
        """Find parameters of modules that were not called, or that backward did not reach."""
        called = {call.module: list(call.module.parameters()) for call in self._calls}
        reached = {p for own in called.values() if any(p.grad is not None for p in own) for p in own}
        missing = [n for n, p in self.step.model.named_parameters() if p.requires_grad and p not in reached]
        if missing:
            yield self._trap("unused", None, parameters=listed(missing))

    def _norm_bias(self) -> Iterator[Trap]:
        for module in self._hooked:
            if type(module) is nn.LayerNorm and module.bias is None:
                yield self._trap("norm_bias", module)

    def _in_place(self) -> Iterator[Trap]:
        for module, where in self.step.changes:
            if module is None:
                text = SENTENCES["in_place"].format(module="the workload's loss", where=where)
                yield Trap("in_place", text, "")
            elif getattr(module, "inplace", False) and type(module).__module__.startswith("torch.nn."):
                yield self._trap("in_place_module", module)
            else:
                yield self._trap("in_place", module, where=where)

    def _embedding_bag(self) -> Iterator[Trap]:
        for call in self._calls:
            if isinstance(call.module, nn.EmbeddingBag) and len(call.shapes) == 1:
                yield self._trap("bag", call.module)
            elif isinstance(call.module, nn.EmbeddingBag) and isinstance(call.module.weight, FakeTensor):
                yield self._trap("bag_on_fakes", call.module)

    def _tuple_of_outputs(self) -> Iterator[Trap]:
        for module in self._hooked:
            if isinstance(module, nn.MultiheadAttention):
                yield self._trap("attention", module)
            elif isinstance(module, TUPLES):
                yield self._trap("recurrent", module, kind=type(module).__name__)

    def _inputs(self) -> Iterator[Trap]:
        for call in self._calls:
            if isinstance(call.module, TUPLES):
                continue
            if not call.shapes and call.keywords:
                yield self._trap("keywords", call.module)
            elif call.module in self._under_functorch and len(call.shapes) + len(call.keywords) > 1:
                yield self._trap("several_inputs", call.module, parameters=_own_parameters(call.module))

    def _random(self) -> Iterator[Trap]:
        for module in self._under_functorch:
            if module in self.step.random:
                yield self._trap("random", module, parameters=_own_parameters(module))

    def _recomputed(self) -> Iterator[Trap]:
        for module in self._hooked:
            if {call.in_backward for call in self._calls if call.module is module} == {False, True}:
                yield self._trap("recomputed", module)

    def _buffers(self) -> Iterator[Trap]:
        """Find buffers of modules with trainable parameters, or of their children, except those of norms."""
        norms = (_BatchNorm, _InstanceNorm)
        of_norms = {b for m in self.step.model.modules() if isinstance(m, norms) for b in m.buffers()}
        for module in self.step.model.modules():
            if not any(p.requires_grad for p in module.parameters(recurse=False)):
                continue
            others = [name for name, buffer in module.named_buffers() if buffer not in of_norms]
            if isinstance(module, _BatchNorm) and any(True for _ in module.buffers()):
                yield self._trap("batch_norm", module, kind=type(module).__name__)
            elif isinstance(module, _InstanceNorm) and any(True for _ in module.buffers()):
                yield self._trap("running_statistics", module, kind=type(module).__name__)
            elif others:
                yield self._trap("buffers", module, buffers=listed(others))

    def _dimensions(self) -> Iterator[Trap]:
        for call in self._calls:
            if type(call.module) is nn.Linear and call.shapes and len(call.shapes[0]) not in (2, 3):
                yield self._trap("dimensions", call.module)

    def _channels_last(self) -> Iterator[Trap]:
        for call in self._calls:
            if type(call.module) is nn.Conv2d and call.has_channels_last:
                yield self._trap("channels_last", call.module)

    def _not_contiguous(self) -> Iterator[Trap]:
        for call in self._calls:
            if type(call.module) is nn.Embedding and not call.has_flat_rows:
                yield self._trap("not_contiguous", call.module)

    def _called_twice(self) -> Iterator[Trap]:
        """Find parameters with a ghost norm that more than one call of the forward uses."""
        named = [*self.step.model.named_parameters(remove_duplicate=False)]
        for parameter in {id(p): p for _, p in named if p.requires_grad}.values():
            owners = [
                call.module
                for call in self._calls
                if not call.in_backward and any(p is parameter for p in call.module.parameters(recurse=False))
            ]
            if len(owners) < 2 or not any(type(owner) in _NORM_SAMPLERS for owner in owners):
                continue
            names = [name for name, p in named if p is parameter]
            if len(names) == 1:
                yield self._trap("reused", owners[0])
                continue
            modules = " and ".join(name.rpartition(".")[0] or "the model" for name in names)
            text = SENTENCES["tied"].format(modules=modules, parameter=names[0])
            yield Trap("tied", text, names[0].rpartition(".")[0])


def hooked(module: nn.Module) -> Iterator[nn.Module]:
    """Yield the modules that Opacus hooks, as its `iterate_submodules` finds them."""
    if any(p.requires_grad for p in module.parameters(recurse=False)):
        if not isinstance(module, _RECURRENT):
            yield module
        if type(module) not in GradSampleModule.GRAD_SAMPLERS and not isinstance(module, _RECURRENT):
            return
    for child in module.children():
        yield from hooked(child)


def _own_parameters(module: nn.Module) -> str:
    return listed([name for name, _ in module.named_parameters(recurse=False)])


def silent_traps(model: nn.Module) -> list[str]:
    """Return warnings about a model that Opacus trains."""
    return [*_raw_parameters(model), *_without_sampler(model), *unbounded(model)]


def hook_warnings(model: nn.Module) -> list[str]:
    """Return warnings about hooks that only look at gradients."""
    return [
        WARNINGS["gradient_hook"].format(parameters=listed([name for name, *_ in hooks]), method=method)
        for method, hooks in grouped(gradient_hooks(model), lambda hook: hook[1]).items()
    ]


def unbounded(model: nn.Module) -> list[str]:
    """Return warnings about layers through which a sample changes more than clipping bounds."""
    of_max = [
        WARNINGS["bag_max"].format(module=name or "the model")
        for name, module in model.named_modules()
        if isinstance(module, nn.EmbeddingBag) and module.mode == "max" and module.weight.requires_grad
    ]
    return [*of_max, *mixed_samples(model)]


def _raw_parameters(module: nn.Module, path: str = "") -> Iterator[str]:
    """Find the outermost modules with parameters of their own that also have children with some."""
    own = [name for name, p in module.named_parameters(recurse=False) if p.requires_grad]
    if own and kind_of(module) not in _LOOKED_INTO:
        if any(True for child in module.children() for _ in child.parameters()):
            yield WARNINGS["raw"].format(module=path or "the model", parameters=listed(own))
        return
    for name, child in module.named_children():
        yield from _raw_parameters(child, f"{path}.{name}" if path else name)


def _without_sampler(model: nn.Module) -> Iterator[str]:
    """Find leaf modules without a grad sampler, by type."""
    paths: dict[str, list[str]] = {}
    for name, module in model.named_modules():
        is_leaf = not any(True for child in module.children() for _ in child.parameters())
        own = any(p.requires_grad for p in module.parameters(recurse=False))
        if own and is_leaf and kind_of(module) not in _LOOKED_INTO and not isinstance(module, TUPLES):
            paths.setdefault(kind_of(module).__name__, []).append(name or "the model")
    for kind, names in paths.items():
        yield WARNINGS["functorch"].format(modules=listed(names), kind=kind)


def mixed_samples(model: nn.Module) -> Iterator[str]:
    """Yield warnings for batch norms without trainable parameters, which Opacus accepts."""
    for name, module in model.named_modules():
        if isinstance(module, _BatchNorm) and not any(p.requires_grad for p in module.parameters()):
            yield WARNINGS["mixing"].format(module=name or "the model", kind=kind_of(module).__name__)
