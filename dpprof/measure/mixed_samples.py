"""Tries whether the samples of a batch change each other's losses: then clipping bounds no sample.

Forward and loss are repeated with copies of one sample in place of all others: that sample's loss must stay.
No shape changes, so that it stays to the bit as a rule. If it does not, float64 tells a true change from
rounding, and the module at fault.
"""

import itertools
import math
import random
import traceback
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch._library.utils import zip_schema
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from dpprof.config.experiment import ExperimentConfig
from dpprof.measure.gradient_check import LeastPrecise, as_type, switch_dropout_off
from dpprof.measure.trainers.draws import drawn_again, state_of
from dpprof.measure.trainers.nested import call, moved, named_leaves
from dpprof.measure.trainers.trial_batch import buffers_kept
from dpprof.measure.trainers.watched_step import Trap, draws
from dpprof.measure.workloads.factory import first_line
from dpprof.measure.workloads.sampling import sampled
from dpprof.measure.workloads.workload import Batch, Workload, build_workload, checked_batch
from dpprof.record.figures.verdicts import TOLERANCES
from dpprof.vocabulary.messages import is_oom

# docs/troubleshooting.md quotes these, with the names in capitals.
SENTENCES = {
    "mixed": "{module} mixes the samples of a batch: with copies of a sample in place of all others, the "
    "sample's loss changed {change}. Clipping bounds what a sample changes in its own gradient, not in those "
    "of others, so that training would not be private: compute each sample's outputs and loss from that "
    "sample alone",
}
WARNINGS = {"unknown": "whether samples change the losses of others in their batch is not known: {why}"}

# Largest relative change of a loss that rounding may explain, in units of the least precise type's.
_ROUNDINGS = 64
# Batches among which one of unlike samples is looked for.
_BATCHES = 10
_WIDE = {
    torch.float32: torch.float64,
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.complex64: torch.complex128,
}


class _Unknown(Exception):
    """The trial came to no result; the message says why."""


def mixing_traps(workload: Workload, batches: Iterable[Batch], config: ExperimentConfig) -> list[Trap]:
    """Return a private trainer's trap if samples change each other's losses, or a warning if nothing tells.

    For a workload that runs; its model is changed. Batch norms are passed over, as every trainer has its own
    sentence about them. Says nothing if there is no loss per sample, as each step does.
    """
    try:
        return _found(workload, _unlike(batches, config), config)
    except _Unknown as unknown:
        why = str(unknown)
    except Exception as error:
        traceback.print_exc()
        why = "out of memory" if is_oom(error) else f"the trial failed: {first_line(error)}"
    return [Trap("mixed", WARNINGS["unknown"].format(why=why), "", is_warning=True)]


def _found(workload: Workload, batch: Batch, config: ExperimentConfig) -> list[Trap]:
    trial = _Trial(workload, config)
    suspects = trial.suspects(batch)
    if not suspects:
        return []
    try:
        found = trial.in_float64().judged(batch, suspects)
    except _Unknown:
        raise
    except Exception as error:  # the model may be written for one type
        if is_oom(error):
            raise
        found = _Trial(build_workload(config), config).judged(batch, suspects)
    return [] if found is None else [found]


def _unlike(batches: Iterable[Batch], config: ExperimentConfig) -> Batch:
    """Return the first batch whose samples differ in inputs and in targets, or else in one of the two."""
    if config.batch_size == 1:
        raise _Unknown("a batch of one sample has no others; check with a batch size of 2 or more")
    source = iter(batches)
    if config.poisson_sampling:  # the workload's own batches may have any size
        source = sampled(source, itertools.repeat(config.batch_size))
    best, most = None, 0
    why = f"no tensor of a batch has a row for each of {config.batch_size} samples"
    for batch in itertools.islice(source, _BATCHES):
        rows = [_rows(part, config.batch_size) for part in checked_batch(batch)]
        differing = sum(any(not torch.equal(t, t[:1].expand_as(t)) for t in part) for part in rows)
        if any(rows):
            why = "all samples of a batch are alike"
        if differing > most:
            best, most = batch, differing
        if differing == 2:
            break
    if best is None:
        raise _Unknown(why)
    return moved(best, torch.device(config.device))


def _rows(tree: Any, size: int) -> list[Tensor]:
    """Return the tensors that have a row for each sample."""
    return [t for _, t in named_leaves(tree) if t.shape[:1] == (size,)]


class _Trial:
    """Forward and loss of a workload, repeated with the same random numbers."""

    def __init__(self, workload: Workload, config: ExperimentConfig) -> None:
        self.model, self.loss = workload.model.train(), workload.loss
        self.size, self.device = config.batch_size, torch.device(config.device)
        self.is_float64 = False
        self.model.zero_grad(set_to_none=True)
        switch_dropout_off(self.model)
        for module in self.model.modules():
            if isinstance(module, _BatchNorm):
                module.register_forward_hook(_as_identity, with_kwargs=True)
        self.draws_from = state_of(self.device), random.getstate(), np.random.get_state()
        with torch.no_grad():
            for parameter in self.model.parameters():  # zeros would hide what they are multiplied with
                if parameter.is_floating_point() and not parameter.any():
                    parameter.uniform_(0, 0.04)

    def in_float64(self) -> "_Trial":
        """Convert the model."""
        self.model._apply(lambda t: as_type(t, str(self.device), torch.float64))
        self.is_float64 = True
        return self

    def suspects(self, batch: Batch) -> list[int]:
        """Return those of the first two samples whose losses change with the others.

        Two, as the others may depend on the first alone, as on the largest.
        """
        as_is = self.losses(batch)
        if not isinstance(as_is, Tensor) or as_is.shape != (self.size,):
            return []
        return [kept for kept in (0, 1) if _change(as_is, self.losses(batch, kept), kept)]

    def judged(self, batch: Batch, suspects: list[int]) -> Trap | None:
        """Return the trap; None if only rounding changed the losses. Raises _Unknown."""
        with LeastPrecise() as least:
            as_is = self.losses(batch)
        nonfinite = int((~as_is.isfinite()).sum())
        if nonfinite:
            raise _Unknown(f"{nonfinite} of {self.size} losses are NaN or infinite")
        computed_in, tolerance = self._rounding(least.dtype)
        largest = 0.0
        for kept in suspects:
            with _Watch(self.model, kept, self.size) as before:
                again = self.losses(batch)
            noise = max(_change(as_is, again, sample) for sample in range(self.size))
            if noise > tolerance:
                raise _Unknown(
                    f"the losses of one batch change from one forward to the next (by {noise:.1e}, "
                    "relative): the model or its loss draws random numbers or keeps state"
                )
            with _Watch(self.model, kept, self.size) as now:
                others = self.losses(batch, kept)
            change = _change(as_is, others, kept)
            if change > tolerance:
                if before.drawn != now.drawn:
                    raise _Unknown("with other samples, the model or its loss draws other random numbers")
                return _trap(before.first_unlike(now, tolerance), float(as_is[kept]), float(others[kept]))
            largest = max(largest, change)
        if largest > TOLERANCES["float64"]:
            raise _Unknown(
                "with copies of a sample in place of all others, the sample's loss changes by "
                f"{largest:.1e}, relative, which may be rounding in {computed_in}"
            )
        return None

    def _rounding(self, least: torch.dtype) -> tuple[str, float]:
        """Return the least precise type and the relative change of a loss that its rounding explains."""
        if not self.is_float64:
            kinds = [p.dtype.to_real() for p in self.model.parameters() if _is_real_or_complex(p)]
            least = max(kinds, key=lambda kind: torch.finfo(kind).eps, default=torch.float32)
        tolerance = max(TOLERANCES["float64"], _ROUNDINGS * torch.finfo(least).eps)
        return str(least).removeprefix("torch."), tolerance

    def losses(self, batch: Batch, kept: int | None = None) -> Any:
        """Return the losses of a batch, or of copies of one sample in place of all others."""
        rows = list(range(self.size)) if kept is None else [kept] * self.size

        def taken(leaf: Tensor) -> Tensor:
            if self.is_float64:
                leaf = as_type(leaf, str(self.device), torch.float64)
            return leaf[torch.tensor(rows, device=leaf.device)] if leaf.shape[:1] == (self.size,) else leaf

        inputs, targets = tree_map_only(Tensor, taken, batch)
        wide = _Wide() if self.is_float64 else nullcontext()
        with self._same_draws(), buffers_kept(self.model), torch.enable_grad(), wide:  # as in training
            losses = self.loss(call(self.model, inputs), targets)
        return losses.detach().double() if isinstance(losses, Tensor) else losses

    @contextmanager
    def _same_draws(self) -> Iterator[None]:
        states, of_python, of_numpy = self.draws_from
        now = random.getstate(), np.random.get_state()
        random.setstate(of_python)
        np.random.set_state(of_numpy)
        try:
            with drawn_again(self.device, states):
                yield
        finally:
            random.setstate(now[0])
            np.random.set_state(now[1])


def _as_identity(module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
    return (*args, *kwargs.values())[0]


class _Wide(TorchDispatchMode):
    """Computes in float64 where a model asks for a less precise type, as `logits.float()` does."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, kwargs = tree_map_only(torch.dtype, lambda t: _WIDE.get(t, t), (args, kwargs or {}))
        return func(*args, **kwargs)


class _Watch(TorchDispatchMode):
    """Notes one sample's rows of what modules get and give, with the module at work, and random draws."""

    def __init__(self, model: nn.Module, kept: int, size: int) -> None:
        super().__init__()
        self.model, self.kept, self.size = model, kept, size
        self.drawn: list[tuple[str, list[Any]]] = []
        self._rows: list[tuple[str, list[Tensor]]] = []
        self._running: list[str] = []
        self._hooks = ExitStack()

    def __enter__(self) -> Any:
        for name, module in self.model.named_modules():
            path = name or "the model"
            enter = lambda _, args, kwargs, path=path: self._enter(path, (args, kwargs))  # noqa: E731
            for handle in (
                module.register_forward_pre_hook(enter, with_kwargs=True),
                module.register_forward_hook(lambda _, args, output: self._leave(output)),
            ):
                self._hooks.callback(handle.remove)
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._hooks.close()

    def _enter(self, path: str, given: Any) -> None:
        self._note(given)
        self._running.append(path)

    def _leave(self, output: Any) -> None:
        self._note(output)
        self._running.pop()

    def _note(self, tree: Any) -> None:
        rows = [t[self.kept].detach().clone() for t in _rows(tree, self.size)]
        self._rows.append((self._running[-1] if self._running else "the model", rows))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if draws(func, [*zip_schema(func._schema, args, kwargs)]):
            shapes = [t.shape if isinstance(t, Tensor) else t for t in tree_leaves((args, kwargs))]
            self.drawn.append((str(func), shapes))
        return func(*args, **kwargs)

    def first_unlike(self, other: "_Watch", tolerance: float) -> str:
        """Return the innermost module that ran before the first unlike rows."""
        for (path, rows), (_, others) in zip(self._rows, other._rows, strict=False):
            if len(rows) != len(others) or not all(
                _are_alike(one, two, tolerance) for one, two in zip(rows, others, strict=True)
            ):
                return path
        return "the workload's loss"


def _are_alike(one: Tensor, other: Tensor, tolerance: float) -> bool:
    if one.shape != other.shape:
        return False
    if not one.numel() or not _is_real_or_complex(one):
        return torch.equal(one, other)
    return bool(((one - other).abs() <= tolerance * one.abs().max()).all())


def _is_real_or_complex(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _change(before: Tensor, now: Tensor, sample: int) -> float:
    """Return the change of a sample's loss over the largest one; inf if it is no longer a number."""
    difference = float((before[sample] - now[sample]).abs())
    if difference == 0:
        return 0.0
    change = difference / max(float(before.abs().max()), float(now[sample].abs()))
    return math.inf if math.isnan(change) else change


def _trap(path: str, before: float, now: float) -> Trap:
    change = abs(before - now) / max(abs(before), abs(now))
    how = f"by {100 * change:.3g} %" if math.isfinite(now) else f"to {now}"
    return Trap("mixed", SENTENCES["mixed"].format(module=path, change=how), path)
