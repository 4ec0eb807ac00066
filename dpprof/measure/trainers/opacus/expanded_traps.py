"""Names the trap when a model meets a limit of expanded weights, as `traps.py` does for Opacus's hooks."""

import re
from collections.abc import Callable
from typing import Any

from torch import nn

from dpprof.errors import message_of
from dpprof.measure.trainers.opacus.trap_sentences import SENTENCES
from dpprof.measure.trainers.opacus.traps import FailedWithOpacus
from dpprof.vocabulary.formats import listed

_NO_RULE = r"Expanded Weights encountered but cannot handle function (\w+)"
_NO_BATCH = ("Expanded Weights needs an input with a batch size", "to have batch size matching input")
_IN_PLACE = r"Output 0 of \w+PerSampleGrad is a view and is being modified inplace"


def diagnose_expanded(error: Exception, model: nn.Module, batch_size: int) -> str | None:
    """The sentence for an error raised by training a model on expanded weights, if it is known."""
    failed = _Failed(error, model, batch_size)
    return next((sentence for rule in _RULES if (sentence := rule(failed))), None)


class _Failed(FailedWithOpacus):
    """A training on expanded weights that failed."""

    def matches(self, pattern: str) -> re.Match[str] | None:
        return re.search(pattern, message_of(self.error)) if isinstance(self.error, RuntimeError) else None

    @property
    def running(self) -> nn.Module:
        """The innermost of the model's modules whose forward was running."""
        return next((m for m in reversed(self.modules_running) if m is not None), self.model)

    def locals_of(self, function: str) -> dict[str, Any] | None:
        """The local variables of a function of torch's expanded weights."""
        package = "torch.nn.utils._expanded_weights."
        for frame in reversed(self.frames):
            if frame.f_code.co_name == function and frame.f_globals.get("__name__", "").startswith(package):
                return frame.f_locals
        return None


def _no_rule(failed: _Failed) -> str | None:
    found = failed.matches(_NO_RULE)
    if found is None:
        return None
    return SENTENCES["ew_function"].format(module=failed.path(failed.running), function=found[1])


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
    return SENTENCES["ew_in_place"].format(module=failed.path(failed.running), place=failed.place)


def _recomputed(failed: _Failed) -> str | None:
    """Without reentry the recomputation fails itself; with it, autograd gives ordinary gradients instead."""
    instead = any(p.grad is not None for p in failed.without_samples.values())
    lacking = failed.says(ValueError, "Per sample gradient is not initialized") and instead
    return SENTENCES["ew_recomputed"] if failed.is_recomputing or lacking else None


def _unused(failed: _Failed) -> str | None:
    if not failed.says(ValueError, "Per sample gradient is not initialized"):
        return None
    return SENTENCES["unused"].format(parameters=listed(list(failed.without_samples)))


def _group_norm(failed: _Failed) -> str | None:
    if not isinstance(failed.running, nn.GroupNorm) or not failed.says(RuntimeError, "X.is_contiguous"):
        return None
    return SENTENCES["ew_group_norm"].format(module=failed.path(failed.running))


def _by_keyword(failed: _Failed) -> str | None:
    call = "GradSampleModuleExpandedWeights.forward() missing"
    return SENTENCES["ew_keywords"] if failed.says(TypeError, call) else None


_RULES: list[Callable[[_Failed], str | None]] = [
    _no_rule,
    _batch_dimension,
    _in_place,
    _recomputed,
    _unused,
    _group_norm,
    _by_keyword,
]
