"""Finds what a loop does that costs memory, or breaks its privacy, and names the line to change.

Looked for while the ledger is kept, when every storage has the line that made it.
"""

import gc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils._pytree import tree_leaves
from torch.utils.data.dataloader import _BaseDataLoaderIter

from dpprof.measure.guard import Guard
from dpprof.measure.own_loop.lines import line_now
from dpprof.measure.own_loop.marks import wrapped
from dpprof.measure.own_loop.present import tensors_alive
from dpprof.measure.passes.account import Account
from dpprof.measure.passes.storages import Life, Storages
from dpprof.measure.trainers.nested import attributes
from dpprof.vocabulary.formats import counted, listed, memory
from dpprof.vocabulary.grouping import grouped
from dpprof.vocabulary.units import mib

# A cost is worth a sentence from this share of the peak on; what each step adds, from a smaller one on.
_WORTH_NAMING, _ADDS_UP = 0.01, 0.0001
_MOST_NAMED = 3
_OF_THE_LOOP = ("inputs", "outputs")  # what the loop's variables hold; other labels are the trainer's
_LOGGED = 256  # bytes of the numbers that a step may keep for a log
_GRAPHS = "a list of losses with their graphs? Keep loss.item() or loss.detach()"
_HISTORY = "a history that nobody shortens?"
# docs/own_loop.md quotes some of them.
GROWS = "each step leaves {size} that is still alive after the next one, made by {made}: {guess}"
KEEPS = (
    "the peak counts {size} from the step before, kept until this step replaces it, made by {made}: "
    "at the end of a step, `del` what the next one does not need"
)
ZEROED = (
    "gradients of the step before ({size}) stay alive through forward, since {line} fills them with zeros: "
    "call zero_grad(set_to_none=True)"
)
LATE = (
    "gradients of the step before ({size}) stay alive through forward: call zero_grad() before the model, "
    "not after it ({line})"
)
NEVER = (
    "gradients of the step before ({size}) stay alive through forward, since nothing sets them to None: call "
    "optimizer.zero_grad() in each step"
)
NOT_TRAINED = (
    "backward computes gradients ({size}) that no optimizer uses, of {names}: if they should train, make the "
    "optimizer after them, with all of model.parameters(); else call requires_grad_(False)"
)
FROZEN = "frozen parameters keep gradients ({size}) that nothing uses, of {names}: set their grad to None"
UNUSED = (
    "{line} calls the model with gradients, and backward never reaches the output in {calls}: "
    "torch.no_grad() would save up to {size}"
)
DROPPED = (
    "; if the loop drops such batches, say for a loss that is NaN, no guarantee holds, since this depends "
    "on the data"
)
STILL = "no step has moved {names}: {why}"
NOT_SAMPLED = (
    "{line} takes batches from a {sampler}, while Opacus's accountant assumes Poisson sampling, so its "
    "epsilon is too low: leave poisson_sampling=True, and train with the loader that make_private returns"
)


@dataclass
class _Call:
    """A call of the model with gradients: its line, the bytes that it leaves alive, and if backward came.

    `kept_gradients` are the bytes of gradients that it began with, before any backward of its step.
    """

    line: str
    num_bytes: int
    kept_gradients: int
    is_reached: bool = False


class LoopFindings:
    """Looks at the steps of a loop for what it could do without.

    Args:
        model: whose gradients are looked at.
        storages: those of the ledger, which get the lines that make them.
        guard: has what fails while it looks.
        is_private: True if a step adds noise.
    """

    def __init__(self, model: nn.Module, storages: Storages, guard: Guard, *, is_private: bool) -> None:
        self._model, self._storages, self._is_private = model, storages, is_private
        self._guard = guard
        self._optimizers = [thing for thing in gc.get_objects() if issubclass(type(thing), Optimizer)]
        self._with_gradient: set[str] = set()
        self._not_trained: dict[str, int] = {}
        self._frozen: dict[str, int] = {}
        self._zeroing: dict[str, bool] = {}
        self._late = ""
        # Since the optimizer's step: whether the model was not called, and backward did not come.
        self._is_uncalled = self._is_before_backward = False
        self._calls: list[_Call] = []
        self._depth = self._first_born = self._kept = 0
        self._is_sampled = False
        self._not_sampled: dict[str, str] = {}

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Look at what runs inside."""
        self._storages.line_now = line_now
        hook, zero = self._guard.hook, self._guard.around(self._zero)
        with (
            register_module_forward_pre_hook(hook(self._enter_module)),
            register_module_forward_hook(hook(self._leave_module), always_call=True),
            register_optimizer_step_pre_hook(hook(self._before_step)),
            wrapped(nn.Module, "zero_grad", zero),
            wrapped(Optimizer, "zero_grad", zero),
            wrapped(_BaseDataLoaderIter, "__next__", self._guard.around(self._advance)),
        ):
            yield

    # What is seen.

    def _enter_module(self, module: nn.Module, args: object) -> None:
        if torch.compiler.is_compiling():
            return
        self._depth += 1
        if self._depth > 1 or not torch.is_grad_enabled():
            return
        self._first_born = self._storages.num_born
        self._is_uncalled, self._kept = False, 0
        if self._is_before_backward:
            trained = self._trained()
            self._kept = sum(size for name, size in self._gradients().items() if name in trained)

    def _leave_module(self, module: nn.Module, args: object, output: object) -> None:
        if torch.compiler.is_compiling():
            return
        self._depth = max(0, self._depth - 1)
        if (
            self._depth
            or not torch.is_grad_enabled()
            or torch._C._functorch.maybe_current_level() is not None
        ):
            return
        nodes = [leaf.grad_fn for leaf in tree_leaves(output) if isinstance(leaf, Tensor) and leaf.grad_fn]
        if nodes:
            left = [life.num_bytes for life in self._storages.alive() if life.number >= self._first_born]
            call = _Call(line_now(), sum(left), self._kept)
            self._calls.append(call)

            def reached(*_: object) -> None:
                call.is_reached, self._is_before_backward = True, False

            for node in nodes:
                node.register_prehook(self._guard.hook(reached))

    def _before_step(self, optimizer: Optimizer, *_: object) -> None:
        if torch.compiler.is_compiling():
            return
        self._is_uncalled = self._is_before_backward = True
        trained, parameters = self._trained(), dict(self._model.named_parameters())
        for name, num_bytes in self._gradients().items():
            self._with_gradient.add(name)
            if not parameters[name].requires_grad:
                self._frozen[name] = num_bytes
            elif name not in trained:
                self._not_trained[name] = num_bytes

    def _gradients(self) -> dict[str, int]:
        """Return the bytes of each gradient; 0 of a sparse one."""
        found = attributes(self._model, "grad")
        return {name: grad.nbytes if grad.layout is torch.strided else 0 for name, grad in found}

    def _trained(self) -> set[str]:
        """Return the names of the parameters that an optimizer has."""
        of = {id(p) for each in self._optimizers for group in each.param_groups for p in group["params"]}
        return {name for name, p in self._model.named_parameters() if p.requires_grad and id(p) in of}

    def _zero(self, zero_grad: Callable[..., Any], owner: Any, set_to_none: bool = True) -> None:
        line = line_now()
        self._zeroing[line] = set_to_none
        if set_to_none and not self._is_uncalled:
            self._late = line
        zero_grad(owner, set_to_none)

    def _advance(self, advance: Callable[[Any], Any], batches: Any) -> Any:
        sampler = batches._index_sampler
        while _kind(sampler) == "BatchSplittingSampler":  # of Opacus's BatchMemoryManager
            sampler = sampler.sampler
        if "UniformWithReplacement" in _kind(sampler):
            self._is_sampled = True
        else:
            self._not_sampled[line_now()] = _kind(getattr(sampler, "sampler", sampler))
        return advance(batches)

    # What it means.

    def sentences(self, highest: Account, starts: list[int], still: list[str]) -> list[str]:
        """Return what was found, one sentence each.

        Args:
            highest: the account of the step with the highest peak.
            starts: the number of the first storage that each step made.
            still: names of the parameters that no step has moved.
        """
        self._peak = highest.peak
        return [
            *self._growing(starts),
            *self._carried(highest, starts),
            *self._gradients_kept(),
            *self._gradients_unused(),
            *self._outputs_unused(),
            *self._standing_still(still),
            *self._sampling(),
            *(self._of_private() if self._is_private else ()),
        ]

    def _growing(self, starts: list[int]) -> Iterator[str]:
        """Name what the second step made that the end of the last one has not."""
        first, end = starts[1:3]
        lives = [
            life for life in self._storages.alive() if first <= life.number < end and not life.is_labelled
        ]
        with_graphs = {self._storages.see(tensor) for tensor in tensors_alive() if tensor.grad_fn is not None}
        has_graphs = not with_graphs.isdisjoint(lives)
        if has_graphs or _bytes_of(lives) > max(_ADDS_UP * self._peak, _LOGGED):
            guess = _GRAPHS if has_graphs else _HISTORY
            yield GROWS.format(size=_size(_bytes_of(lives)), made=_made(lives), guess=guess)

    def _carried(self, highest: Account, starts: list[int]) -> Iterator[str]:
        """Name what one step made and the next one still has at its peak, before it is gone."""
        log = highest.log
        gone = {id(event.life) for event in log.events[: highest.peak_event + 1] if event.num_bytes < 0}
        lives = [
            life
            for life, _ in log.present
            if starts[0] <= life.number and id(life) not in gone and not life.alive
            if not life.is_labelled or life.first_category in _OF_THE_LOOP
        ]
        if _bytes_of(lives) > _WORTH_NAMING * self._peak:
            yield KEEPS.format(size=_size(_bytes_of(lives)), made=_made(lives))

    def _gradients_kept(self) -> Iterator[str]:
        kept = max((call.kept_gradients for call in self._calls if call.is_reached), default=0)
        if kept <= _WORTH_NAMING * self._peak:
            return
        filled = [line for line, set_to_none in self._zeroing.items() if not set_to_none]
        if filled:
            yield ZEROED.format(size=_size(kept), line=filled[0])
        elif self._late:
            yield LATE.format(size=_size(kept), line=self._late)
        else:
            yield NEVER.format(size=_size(kept))

    def _gradients_unused(self) -> Iterator[str]:
        for found, sentence in ((self._not_trained, NOT_TRAINED), (self._frozen, FROZEN)):
            if found:
                yield sentence.format(size=_size(sum(found.values())), names=listed(list(found)))

    def _outputs_unused(self) -> Iterator[str]:
        for line, calls in grouped(self._calls, lambda call: call.line).items():
            unused = [call.num_bytes for call in calls if not call.is_reached]
            if max(unused, default=0) > _WORTH_NAMING * self._peak:
                share = f"{len(unused)} of {counted(len(calls), 'call')}"
                sentence = UNUSED.format(line=line, calls=share, size=_size(max(unused)))
                yield sentence + DROPPED * (self._is_private and len(unused) < len(calls))

    def _standing_still(self, still: list[str]) -> Iterator[str]:
        trained = self._trained()
        found = grouped((name for name in still if name in trained), self._with_gradient.__contains__)
        small = "steps are too small to show, or the learning rate is 0"
        for has_gradient, why in ((False, "the loss gives no gradient"), (True, small)):
            if has_gradient in found:
                yield STILL.format(names=listed(found[has_gradient]), why=why)

    def _sampling(self) -> Iterator[str]:
        # Beside a Poisson-sampled loader, others do not train: they may be those of an evaluation.
        has_accountant = any(getattr(one, "step_hook", None) is not None for one in self._optimizers)
        if has_accountant and not self._is_sampled:
            for line, sampler in self._not_sampled.items():
                yield NOT_SAMPLED.format(line=line, sampler=sampler)

    def _of_private(self) -> Iterator[str]:
        """Name what checks know of Opacus's models, and the batch norms of any private loop."""
        from dpprof.measure.trainers.opacus.foreseen import WARNINGS, silent_traps

        model = getattr(self._model, "_module", self._model)
        if model is not self._model:  # wrapped by Opacus
            yield from silent_traps(model)
            return
        for name, module in model.named_modules():
            if isinstance(module, _BatchNorm) and module.training:
                yield WARNINGS["mixing"].format(module=name or "the model", kind=_kind(module))


def _bytes_of(lives: list[Life]) -> int:
    return sum(life.num_bytes for life in lives)


def _size(num_bytes: int) -> str:
    return memory(mib(num_bytes))


def _made(lives: list[Life]) -> str:
    made: Counter[str] = Counter()
    for life in lives:
        where = f"at {life.line}" if life.line else f"in {life.phase or 'no phase'}"
        made[f"{life.operator.removeprefix('aten::')} {where}"] += life.num_bytes
    return ", ".join(f"{by} ({_size(num_bytes)})" for by, num_bytes in made.most_common(_MOST_NAMED))


def _kind(thing: object) -> str:
    return type(thing).__name__
