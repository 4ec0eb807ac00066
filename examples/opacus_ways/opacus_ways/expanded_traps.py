"""Explains errors of expanded weights: one sentence with module and remedy."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from traceback import walk_tb
from types import FrameType
from typing import Any

from torch import nn

from dpprof.errors import message_of
from dpprof.measure.trainers.opacus.foreseen import SENTENCES
from dpprof.vocabulary.formats import listed

OWN_SENTENCES = {
    "function": "{module} uses its parameters in {function}, for which torch has no expanded weights: use "
    "a layer that it has them for, such as nn.Linear or nn.LayerNorm, or another trainer",
    "in_place": "{module} changes in place ({place}) what a layer with expanded weights gave, which torch "
    "does not allow: write x = x + y for x += y, relu(x) for relu_(x), and leave inplace=True out",
    "recomputed": "activation checkpointing calls modules again in backward, where they have no expanded "
    "weights: leave it out, or use another trainer",
    "group_norm": "{module} gets an input that is not contiguous, and with expanded weights nn.GroupNorm "
    "needs a contiguous one: call .contiguous() on it",
    "keywords": "the model is called with keyword arguments, and with expanded weights its first argument "
    "must come by position: give the batch's inputs as a tensor or a tuple",
}
_NO_RULE = r"Expanded Weights encountered but cannot handle function (\w+)"
_NO_BATCH = ("Expanded Weights needs an input with a batch size", "to have batch size matching input")
_IN_PLACE = r"Output 0 of \w+PerSampleGrad is a view and is being modified inplace"


def diagnose_expanded(error: Exception, model: nn.Module, batch_size: int) -> str | None:
    """Explain an error from training on expanded weights, if known."""
    failed = _Failed(error, model, batch_size)
    return next((sentence for rule in _RULES if (sentence := rule(failed))), None)


@dataclass(frozen=True)
class _Failed:
    error: Exception
    model: nn.Module
    batch_size: int

    @cached_property
    def frames(self) -> list[FrameType]:
        """Frames that the error came through, innermost last."""
        return [frame for frame, _ in walk_tb(self.error.__traceback__)]

    def says(self, kind: type[Exception], *texts: str) -> bool:
        """Tell if the error is of this type and has one of these texts."""
        return isinstance(self.error, kind) and any(text in message_of(self.error) for text in texts)

    def path(self, module: nn.Module) -> str:
        """Return the dotted path of one of the model's modules."""
        return next(name for name, each in self.model.named_modules() if each is module) or "the model"

    def matches(self, pattern: str) -> re.Match[str] | None:
        return re.search(pattern, message_of(self.error)) if isinstance(self.error, RuntimeError) else None

    @property
    def running(self) -> nn.Module:
        """Innermost of the model's modules whose forward was running."""
        return next((m for m in reversed(self.modules_running) if m is not None), self.model)

    @property
    def place(self) -> str:
        """Innermost line outside torch."""
        trace = [*walk_tb(self.error.__traceback__)]
        own = [step for step in trace if step[0].f_globals.get("__name__", "").partition(".")[0] != "torch"]
        frame, line = own[-1]
        return f"{Path(frame.f_code.co_filename).name}, line {line}"

    @property
    def is_recomputing(self) -> bool:
        """True if a checkpoint was running its forward again."""
        return any(
            frame.f_code.co_name == "unpack_hook"
            and frame.f_globals.get("__name__") == "torch.utils.checkpoint"
            for frame in self.frames
        )

    @property
    def modules_running(self) -> list[nn.Module | None]:
        """Objects whose forward was running, innermost last: None for those not of the model."""
        modules = {id(module): module for module in self.model.modules()}
        return [modules.get(id(f.f_locals.get("self"))) for f in self.frames if f.f_code.co_name == "forward"]

    @property
    def without_samples(self) -> dict[str, nn.Parameter]:
        """Trainable parameters without per-sample gradients, by name."""
        named = self.model.named_parameters()
        lacking = lambda p: getattr(p, "grad_sample", None) is None  # noqa: E731
        return {n: p for n, p in named if p.requires_grad and lacking(p)}

    def locals_of(self, function: str) -> dict[str, Any] | None:
        """Return the local variables of a function of torch's expanded weights."""
        package = "torch.nn.utils._expanded_weights."
        for frame in reversed(self.frames):
            if frame.f_code.co_name == function and frame.f_globals.get("__name__", "").startswith(package):
                return frame.f_locals
        return None


def _no_rule(failed: _Failed) -> str | None:
    found = failed.matches(_NO_RULE)
    if found is None:
        return None
    return OWN_SENTENCES["function"].format(module=failed.path(failed.running), function=found[1])


def _batch_dimension(failed: _Failed) -> str | None:
    arguments = failed.locals_of("_check_and_unexpand_args") or failed.locals_of("forward")
    if not failed.says(RuntimeError, *_NO_BATCH) or arguments is None:
        return None
    given = arguments.get("expanded_args", (None,))[0]
    name = "ids" if isinstance(failed.running, nn.Embedding) else "inputs"
    path = failed.path(failed.running)
    return SENTENCES[name].format(module=path, length=len(given), batch_size=failed.batch_size)


def _in_place(failed: _Failed) -> str | None:
    if not failed.matches(_IN_PLACE):
        return None
    return OWN_SENTENCES["in_place"].format(module=failed.path(failed.running), place=failed.place)


def _recomputed(failed: _Failed) -> str | None:
    """Without reentry the recomputation itself fails; with it, autograd gives ordinary gradients instead."""
    instead = any(p.grad is not None for p in failed.without_samples.values())
    lacking = failed.says(ValueError, "Per sample gradient is not initialized") and instead
    return OWN_SENTENCES["recomputed"] if failed.is_recomputing or lacking else None


def _unused(failed: _Failed) -> str | None:
    if not failed.says(ValueError, "Per sample gradient is not initialized"):
        return None
    return SENTENCES["unused"].format(parameters=listed(list(failed.without_samples)))


def _group_norm(failed: _Failed) -> str | None:
    if not isinstance(failed.running, nn.GroupNorm) or not failed.says(RuntimeError, "X.is_contiguous"):
        return None
    return OWN_SENTENCES["group_norm"].format(module=failed.path(failed.running))


def _by_keyword(failed: _Failed) -> str | None:
    call = "GradSampleModuleExpandedWeights.forward() missing"
    return OWN_SENTENCES["keywords"] if failed.says(TypeError, call) else None


_RULES: list[Callable[[_Failed], str | None]] = [
    _no_rule,
    _batch_dimension,
    _in_place,
    _recomputed,
    _unused,
    _group_norm,
    _by_keyword,
]
