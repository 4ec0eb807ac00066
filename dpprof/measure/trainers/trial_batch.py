"""Trial of a model before its first step: finds which tensors begin with the batch.

A mask shared by all samples may have as many rows as the batch by chance; with another batch size it differs.
"""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain, count
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_map

from dpprof.errors import WorkloadError, describe_error
from dpprof.measure.trainers.base import TrainerBase
from dpprof.measure.trainers.draws import drawn_again, state_of
from dpprof.measure.trainers.nested import call, named_leaves
from dpprof.vocabulary.messages import is_oom

# Change of other samples' outputs, relative to the largest, that cannot be rounding.
_CHANGE = 0.1


@dataclass
class Trial:
    """Forward of `size` samples. `others` are the sizes of all dimensions but the batch's.

    `lengths` are first dimensions of modules' tensors, by path and argument ("": all arguments).
    """

    size: int
    others: frozenset[int] = frozenset()
    lengths: dict[tuple[str, str], set[int]] = field(default_factory=lambda: defaultdict(set))

    def cut(self, inputs: Any, batch_size: int) -> Any:
        """Cut a batch's inputs to the trial's size, repeating samples if there are fewer."""

        def taken(leaf: Any) -> Any:
            if not isinstance(leaf, Tensor) or leaf.shape[:1] != (batch_size,):
                return leaf
            return leaf[torch.arange(self.size, device=leaf.device) % batch_size]

        return tree_map(taken, inputs)

    def of_another_size(self, batch_size: int) -> "Trial":
        """Return the trial with a third batch size, which also differs from all other dimensions."""
        return replace(self, size=_size_unlike({*self.others, batch_size, self.size}))

    def begins_with_batch(self, tensor: Tensor, batch_size: int, path: str, argument: str = "") -> bool:
        """Tell if a module's tensor has a row per sample. Raises WorkloadError if that cannot be known."""
        if tensor.shape[:1] != (batch_size,):
            return False
        lengths = self.lengths.get((path, argument), set())
        if len(lengths) == 1:
            return self.size in lengths
        if batch_size in (*tensor.shape[1:], *(lengths or self.others)):
            raise WorkloadError(
                f"{path} is called with a tensor of shape {tuple(tensor.shape)}, and nothing tells whether "
                "its rows are samples: train with another batch size or sequence length"
            )
        return True


def tried(trainer: TrainerBase, batch: Any, batch_size: int) -> Trial:
    """Run forward, without gradients, on a batch whose size differs from every other dimension.

    Raises WorkloadError for a model that only works with `batch_size`.
    """
    tensors = [t for _, t in named_leaves(batch)]
    weights = chain(trainer.model.parameters(), trainer.model.buffers())
    others = {n for t in weights for n in t.shape} | {n for t in tensors for n in t.shape[1:]}
    others |= {n for t in tensors for n in t.shape[:1] if n != batch_size}
    trial = Trial(_size_unlike({*others, batch_size}), frozenset(others))

    inputs, _ = batch
    cut = trial.cut(inputs, batch_size)
    with _noting(trainer.model, trial):
        try:
            run_without_side_effects(trainer, cut)
        except Exception as error:
            if is_oom(error):
                raise
            try:
                run_without_side_effects(trainer, cut, with_gradients=True)  # which forward may take itself
            except Exception:
                _refuse_if_it_takes(trainer, inputs, batch_size, trial, error)
    return trial


def _size_unlike(others: set[int]) -> int:
    return next(n for n in count(2) if n not in others)


def _refuse_if_it_takes(
    trainer: TrainerBase, inputs: Any, batch_size: int, trial: Trial, error: Exception
) -> None:
    """Raise WorkloadError unless the batch itself fails too: then the step will tell."""
    try:
        run_without_side_effects(trainer, inputs)
    except Exception:
        trial.lengths.clear()
        return
    raise WorkloadError(
        f"the model takes {batch_size} samples and fails with {trial.size} "
        f"({describe_error(error).splitlines()[0]}): let it take any number of them"
    ) from error


@contextmanager
def _noting(model: nn.Module, trial: Trial) -> Iterator[None]:
    def note(path: str, args: Any) -> None:
        for argument, tensor in named_leaves(args):
            for key in ((path, argument), (path, "")) if tensor.dim() else ():
                trial.lengths[key].add(tensor.shape[0])

    with ExitStack() as stack:
        for name, module in model.named_modules(remove_duplicate=False):
            path = name or "the model"
            handle = module.register_forward_pre_hook(
                lambda _, args, kwargs, path=path: note(path, (args, kwargs)), with_kwargs=True
            )
            stack.enter_context(handle)
        yield


def run_without_side_effects(trainer: TrainerBase, inputs: Any, *, with_gradients: bool = False) -> Any:
    """Run forward, then restore buffers and the random generators; return its output."""
    is_bf16 = trainer.precision == "bf16"
    with (
        drawn_again(trainer.device, state_of(trainer.device)),
        torch.autocast(trainer.device.type, torch.bfloat16, enabled=is_bf16),
        torch.set_grad_enabled(with_gradients),
        trainer.unhooked(),
        buffers_kept(trainer.model),
    ):
        return call(trainer.model, inputs)


@contextmanager
def buffers_kept(model: nn.Module) -> Iterator[None]:
    """Restore all buffers afterwards, in place."""
    before = [
        (module, name, buffer, buffer._version, buffer.clone())
        for module in model.modules()
        for name, buffer in module._buffers.items()
        if buffer is not None
    ]
    try:
        yield
    finally:
        for module, name, buffer, version, value in before:
            module._buffers[name] = buffer  # forward may have put another one there
            if buffer._version != version:
                with torch.no_grad():
                    buffer.copy_(value)


def refuse_mixed(trainer: TrainerBase, inputs: Any, trial: Trial) -> None:
    """Raise WorkloadError for a model that mixes samples by an embedding of ids of one row.

    Its output has a row for each sample under `per_sample`, so that sums or indices over the first dimension
    mix samples: the first sample's row then affects other samples' outputs.
    """
    for path, module in trainer.model.named_modules():
        is_shared = isinstance(module, nn.Embedding) and 1 in trial.lengths.get((path, ""), ())
        has_rule = "forward" in vars(module)
        if not (is_shared and has_rule) or isinstance(module.weight, FakeTensor):
            continue
        try:
            before = _of_others(run_without_side_effects(trainer, inputs), trial.size)
        except Exception:  # the step will tell
            return
        with module.register_forward_hook(_with_another_first(trial.size)):
            try:
                after = _of_others(run_without_side_effects(trainer, inputs), trial.size)
            except Exception as error:
                if is_oom(error):
                    raise
                raise _mixed(path) from error
        for one, other in zip(before, after, strict=True):
            if (one - other).abs().max() > _CHANGE * one.abs().max():
                raise _mixed(path)


def _mixed(path: str) -> WorkloadError:
    return WorkloadError(
        f"{path} is called with ids of one row, and its output, a row for each sample, is used as one row: "
        "add it to a tensor of the batch as it is"
    )


def _of_others(outputs: Any, size: int) -> list[Tensor]:
    tensors = [tensor for _, tensor in named_leaves(outputs)]
    return [t[1:].float() for t in tensors if t.is_floating_point() and t.shape[:1] == (size,)]


def _with_another_first(size: int) -> Any:
    """Return a hook that repeats the row for each sample, but changes the first sample's."""

    def hook(module: nn.Module, args: Any, rows: Tensor) -> Tensor:
        if rows.dim() < 3 or len(rows) != 1:
            return rows
        other = rows + torch.linspace(-9, 9, rows.shape[-1], dtype=rows.dtype, device=rows.device)
        return torch.cat([other, rows.repeat(size - 1, *[1] * (rows.dim() - 1))])

    return hook
