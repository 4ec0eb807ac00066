"""Names the trap when a model meets a limit of Opacus: one sentence, with the module and the remedy.

Opacus's own errors tell what failed inside Opacus, not which module of the model is at fault. A sentence is
given only where the error and the state of the model prove the cause; any other error stays as it is.
"""

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from traceback import walk_tb
from typing import Any

from opacus.grad_sample import GradSampleModule
from torch import Tensor, nn
from torch._subclasses.fake_tensor import DataDependentOutputException
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from dpprof.errors import message_of
from dpprof.measure.trainers.base import TrainerBase
from dpprof.measure.trainers.failed_training import FailedTraining
from dpprof.measure.trainers.opacus.trap_sentences import SENTENCES
from dpprof.vocabulary.formats import listed

# Their output is a tuple, which no hook of Opacus's takes.
TUPLES = (nn.LSTM, nn.GRU, nn.RNN, nn.MultiheadAttention)


def diagnose(error: Exception, model: nn.Module, batch_size: int) -> str | None:
    """The sentence for an error raised by training a model on batches of so many samples, if it is known."""
    failed = FailedWithOpacus(error, model, batch_size)
    return next((sentence for rule in _RULES if (sentence := rule(failed))), None)


class DifferentSamples(ValueError):
    """Per-sample gradients of different numbers of samples, where Opacus does not notice."""


class FailedWithOpacus(FailedTraining):
    """A training of Opacus's that failed."""

    def inside(self, function: str) -> dict[str, Any] | None:
        """The local variables of the innermost call of a function of Opacus's, None if there was none."""
        for frame in reversed(self.frames):
            if frame.f_code.co_name == function and frame.f_globals.get("__name__", "").startswith("opacus."):
                return frame.f_locals
        return None

    @property
    def place(self) -> str:
        """The innermost line that is not torch's."""
        trace = [*walk_tb(self.error.__traceback__)]
        own = [step for step in trace if step[0].f_globals.get("__name__", "").partition(".")[0] != "torch"]
        frame, line = own[-1]
        return f"{Path(frame.f_code.co_filename).name}, line {line}"

    @property
    def is_recomputing(self) -> bool:
        """Whether a checkpoint was running its forward again."""
        return any(
            frame.f_code.co_name == "unpack_hook"
            and frame.f_globals.get("__name__") == "torch.utils.checkpoint"
            for frame in self.frames
        )

    @property
    def modules_running(self) -> list[nn.Module | None]:
        """The objects whose forward was running, the innermost last: None for those not of the model."""
        modules = {id(module): module for module in self.model.modules()}
        return [modules.get(id(f.f_locals.get("self"))) for f in self.frames if f.f_code.co_name == "forward"]

    @property
    def without_samples(self) -> dict[str, nn.Parameter]:
        """The trainable parameters that have no per-sample gradient, nor a norm of one, by name."""
        named = self.model.named_parameters()
        return {n: p for n, p in named if p.requires_grad and _samples(p) is None}

    @cached_property
    def called(self) -> list[nn.Module]:
        """The modules whose calls Opacus's hooks have seen."""
        return [m for m in self.model.modules() if isinstance(vars(m).get("activations"), list)]


def _batch_dimension(failed: FailedWithOpacus) -> str | None:
    """Norms of different numbers of samples cannot be stacked."""
    stacking = failed.inside("clip_and_accumulate") or failed.inside("get_norm_sample")
    kinds = (RuntimeError, AssertionError)  # older torch raises the latter on fake tensors
    stacked = stacking and failed.says(kinds, "stack expects each tensor", "Sizes of tensors must match")
    if not stacked and not isinstance(failed.error, DifferentSamples):
        return None
    lengths = {m: {len(s) for p in m.parameters() if (s := _samples(p)) is not None} for m in failed.called}
    wrong = [m for m, found in lengths.items() if len(found) == 1 and failed.batch_size not in found]
    if not wrong or {failed.batch_size} not in lengths.values():
        return None
    wrong.sort(key=lambda module: not isinstance(module, nn.Embedding))
    sentence = SENTENCES["ids" if isinstance(wrong[0], nn.Embedding) else "inputs"]
    (length,) = lengths[wrong[0]]
    return sentence.format(module=failed.path(wrong[0]), length=length, batch_size=failed.batch_size)


def _no_gradient(failed: FailedWithOpacus) -> str | None:
    """A parameter has no per-sample gradient, or no norm of one, when the optimizer wants it."""
    norms = failed.inside("get_norm_sample")
    lacking = failed.says(AttributeError, "has no attribute '_norm_sample'") if norms else False
    if failed.inside("_get_flat_grad_sample"):
        lacking = failed.says(ValueError, "Per sample gradient is not initialized")
    if not lacking:
        return None
    missing = failed.without_samples
    lost = [m for m in failed.called if any(p is q for p in m.parameters() for q in missing.values())]
    done = [m for m in lost if not m.activations]  # the hook ran to its end, and found nothing
    linear = next((m for m in done if type(m) is nn.Linear), None)
    if linear is not None and norms and norms["self"].use_ghost_clipping:
        return SENTENCES["dimensions"].format(module=failed.path(linear))
    for module in lost:
        if type(module) in TUPLES:  # the hook of the first output; the loss takes another one
            return _of_tuples(failed, module)
    # Of other modules' outputs, too, the one that is hooked need not be the one that the loss takes.
    if done or any(type(m) not in GradSampleModule.GRAD_SAMPLERS for m in lost):
        return None
    if not missing or any(hasattr(p, "_current_grad_sample") for p in missing.values()):
        return None
    return SENTENCES["unused"].format(parameters=listed(list(missing)))


def _norm_bias(failed: FailedWithOpacus) -> str | None:
    sampler = failed.inside("compute_layer_norm_grad_sample")
    if not sampler or sampler["layer"].bias is not None or not failed.says(AttributeError, "requires_grad"):
        return None
    return SENTENCES["norm_bias"].format(module=failed.path(sampler["layer"]))


def _in_place(failed: FailedWithOpacus) -> str | None:
    """The operator fails where it stands, in a module's forward or in the loss."""
    hooked = ("BackwardHookFunction", "BackwardHookFunctionBackward")  # torch's word, and that of older torch
    if not failed.says(RuntimeError, *(f"{name} is a view and is being modified inplace" for name in hooked)):
        return None
    module = next((module for module in reversed(failed.modules_running) if module is not None), None)
    if module is not None and getattr(module, "inplace", False) and _is_torchs(module):
        return SENTENCES["in_place_module"].format(module=failed.path(module))
    if module is None and not any(
        frame.f_code is TrainerBase.compute_losses.__code__ for frame in failed.frames
    ):
        return None
    culprit = "the workload's loss" if module is None else failed.path(module)
    return SENTENCES["in_place"].format(module=culprit, place=failed.place)


def _is_torchs(module: nn.Module) -> bool:
    return type(module).__module__.startswith("torch.nn.")


def _embedding_bag(failed: FailedWithOpacus) -> str | None:
    prepared = failed.inside("prepare_layer")
    if prepared and failed.says(NotImplementedError, "EmbeddingBag"):
        return SENTENCES["bag_under_functorch"].format(module=failed.path(prepared["layer"]))
    sampler = failed.inside("compute_embeddingbag_gradsampler")
    if not sampler:
        return None
    if isinstance(failed.error, DataDependentOutputException):
        return SENTENCES["bag_on_fakes"].format(module=failed.path(sampler["layer"]))
    if failed.says(ValueError, "values to unpack"):
        return SENTENCES["bag"].format(module=failed.path(sampler["layer"]))
    return None


def _tuple_of_outputs(failed: FailedWithOpacus) -> str | None:
    """Opacus multiplies a module's output, which is a tuple here: whatever fails first, it had to."""
    hook = failed.inside("capture_backprops_hook") or failed.inside("capture_activations_hook")
    return _of_tuples(failed, hook["module"]) if hook and type(hook["module"]) in TUPLES else None


def _of_tuples(failed: FailedWithOpacus, module: nn.Module) -> str:
    if isinstance(module, nn.MultiheadAttention):
        return SENTENCES["attention"].format(module=failed.path(module))
    return SENTENCES["recurrent"].format(module=failed.path(module), kind=type(module).__name__)


def _inputs(failed: FailedWithOpacus) -> str | None:
    """The hooks keep what is passed by position, and functorch gets the first of that."""
    functorch = failed.inside("ft_compute_per_sample_gradient")
    if functorch and failed.says(TypeError, "required positional argument"):
        own = [name for name, _ in functorch["layer"].named_parameters(recurse=False)]
        if f"{type(functorch['layer']).forward.__qualname__}()" in message_of(failed.error):
            path = failed.path(functorch["layer"])
            return SENTENCES["several_inputs"].format(module=path, parameters=listed(own))
    batch = failed.inside("_get_batch_size")
    if batch and failed.says(IndexError, "") and [] in batch["module"].activations:
        return SENTENCES["keywords"].format(module=failed.path(batch["module"]))
    return None


def _random(failed: FailedWithOpacus) -> str | None:
    functorch = failed.inside("ft_compute_per_sample_gradient")
    if not functorch or not failed.says(RuntimeError, "vmap: called random operation"):
        return None
    own = [name for name, _ in functorch["layer"].named_parameters(recurse=False)]
    return SENTENCES["random"].format(module=failed.path(functorch["layer"]), parameters=listed(own))


def _tied(failed: FailedWithOpacus) -> str | None:
    hook = failed.inside("capture_activations_hook")
    if not hook or not failed.says(NotImplementedError, "Parameter tying"):
        return None
    if failed.is_recomputing:
        return SENTENCES["recomputed"].format(module=failed.path(hook["module"]))
    named = [*failed.model.named_parameters(remove_duplicate=False)]
    names = [name for name, parameter in named if parameter is hook["p"]]
    if len(names) == 1:
        return SENTENCES["reused"].format(module=failed.path(hook["module"]))
    owners = [name.rpartition(".")[0] or "the model" for name in names]
    return SENTENCES["tied"].format(modules=" and ".join(owners), parameter=names[0])


def _buffers(failed: FailedWithOpacus) -> str | None:
    """As Opacus finds them: buffers of a module with trainable parameters, or of its children."""
    if not failed.inside("validate") or not failed.says(NotImplementedError, "trainable layer with buffers"):
        return None
    refused = [
        module
        for module in failed.model.modules()
        if any(p.requires_grad for p in module.parameters(recurse=False))
        and any(True for _ in module.buffers())
    ]
    refused.sort(key=lambda m: (not isinstance(m, _BatchNorm), not isinstance(m, _InstanceNorm)))
    path, kind = failed.path(refused[0]), type(refused[0]).__name__
    if isinstance(refused[0], _BatchNorm):
        return SENTENCES["batch_norm"].format(module=path, kind=kind)
    if isinstance(refused[0], _InstanceNorm):
        return SENTENCES["running_statistics"].format(module=path, kind=kind)
    names = [name for name, _ in refused[0].named_buffers()]
    return SENTENCES["buffers"].format(module=path, buffers=listed(names))


def _not_contiguous(failed: FailedWithOpacus) -> str | None:
    sampler = failed.inside("compute_embedding_norm_sample")
    if not sampler or not failed.says(Exception, "view size is not compatible", "Cannot view a tensor"):
        return None
    if sampler["activations"][0].is_contiguous():
        return None
    return SENTENCES["not_contiguous"].format(module=failed.path(sampler["layer"]))


_RULES: list[Callable[[FailedWithOpacus], str | None]] = [
    _batch_dimension,
    _no_gradient,
    _norm_bias,
    _in_place,
    _embedding_bag,
    _tuple_of_outputs,
    _inputs,
    _random,
    _tied,
    _buffers,
    _not_contiguous,
]


def _samples(parameter: nn.Parameter) -> Tensor | None:
    """Per-sample gradients or norms of them, whichever Opacus keeps on a parameter."""
    kept = getattr(parameter, "grad_sample", None)
    if kept is None:
        kept = getattr(parameter, "_norm_sample", None)
    return kept if isinstance(kept, Tensor) else None
