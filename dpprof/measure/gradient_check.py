"""The gradient check: compares a trainer's clipped gradient, without noise, with a naive per-sample loop.

The naive loop runs once, in float64. The trainer is compared with it in float64, in float32 and, if the
experiment trains in TF32 or bf16, as it does: under autocast, with its weights in bf16, or both. Dropout is
switched off first. There is no verdict if losses are not finite, change from one forward to the next, or
depend on the rest of the batch.
`record/figures/verdicts.py` judges the errors.
"""

import dataclasses
import gc
import itertools
import math
from collections.abc import Sequence
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter, tree_map_only

from dpprof.config.experiment import ExperimentConfig
from dpprof.measure.passes.clean import KeptLosses
from dpprof.measure.passes.subject import Subject
from dpprof.measure.trainers.base import TrainerBase
from dpprof.measure.trainers.build import build_trainer, clip_rule
from dpprof.measure.trainers.draws import dropouts
from dpprof.measure.trainers.nested import call
from dpprof.measure.trainers.parallel import parallel_of
from dpprof.measure.trainers.products import products_in
from dpprof.measure.trainers.reference import (
    clipped_mean,
    copied,
    global_norm,
    gradients_of,
    naive_per_sample_gradients,
    relative_error,
    single_sample,
)
from dpprof.measure.workloads.sampling import sampled
from dpprof.measure.workloads.trainable import fill_adapters
from dpprof.measure.workloads.workload import Batch, Workload, build_workload
from dpprof.record.figures.verdicts import AS_THE_NAIVE_LOOP, TOLERANCES
from dpprof.record.record import GradientCheck
from dpprof.vocabulary.precision import BF16, TF32
from dpprof.vocabulary.trainers import trainer_info

# For each way of computing, the trainer's precision and the type of its weights; None leaves theirs to them.
_WAYS: dict[str, tuple[str, torch.dtype | None]] = {
    "float64": ("fp32", torch.float64),
    "float32": ("fp32", torch.float32),
    "tf32": (TF32, torch.float32),
    "bfloat16": ("bf16", torch.float32),
}


class Undecidable(Exception):
    """There is no single correct gradient to compare with; the message says why."""


class Wrong(Exception):
    """The gradient is wrong in a way that no relative error shows; the message says how."""


def run(subject: Subject) -> None:
    """Check the experiment's trainer and put the result into the record."""
    subject.record.gradient_check = check_gradient(subject.config)


def check_gradient(config: ExperimentConfig) -> GradientCheck:
    """Compare the clipped gradient of one physical batch, without noise, with the naive loop's."""
    case = Case(config)
    found = GradientCheck(dropout_off=switch_dropout_off(case.workload.model))
    try:
        found.computed_in = case.computed_in = case.probe()
        reference = case.clipped_mean(case.per_sample_gradients())
        found.relative_error_float64 = case.error("float64", reference)
        found.relative_error_float32 = case.error("float32", reference)
        if case.way == "tf32":
            found.relative_error_tf32 = case.error("tf32", reference)
        if case.way == "bfloat16":
            found.relative_error_bf16 = case.error("bfloat16", reference)
        found.rounding = dict(case.rounding)
    except Undecidable as why:
        found.doubt = str(why)
    except Wrong as what:
        found.fault = str(what)
    return found


def switch_dropout_off(model: nn.Module) -> bool:
    """Set every dropout module's probability to 0. Returns True if any was above 0.

    Dropout that a model applies by a function call stays on.
    """
    found = list(dropouts(model))
    for module, name in found:
        setattr(module, name, 0.0)
    return bool(found)


class Case:
    """An experiment's model, its loss and the batches of one step, to be evaluated in several ways.

    `way` is how the run computes, `float32`, `tf32` or `bfloat16`; `computed_in` is the least precise type
    that the model itself computes in; `rounding` is the naive loop's own error by way, where the trainer's is
    above its tolerance; `noise_multiplier` is the run's, or 1 if that is 0; `per_sample` are the true
    gradients, where they are kept. With several ranks, all share a physical batch. They must decide alike, or
    one would wait for ever.
    """

    computed_in = "float64"
    max_grad_norm: float | None = None
    per_sample: list[list[Tensor]]

    def __init__(self, config: ExperimentConfig, num_batches: int = 1) -> None:
        self.config = dataclasses.replace(
            config, accumulation_steps=num_batches, noise_multiplier=0.0, poisson_sampling=False
        )
        self.workload = build_workload(self.config)
        fill_adapters(self.workload.model)
        batches = iter(self.workload.batches)
        if config.poisson_sampling:  # the workload's own batches may have any size
            batches = sampled(batches, itertools.repeat(config.batch_size))
        self.parallel = parallel_of(config.parallel, torch.device(config.device))
        self.num_batches = num_batches
        self.batch_size = config.batch_size * self.parallel.world_size
        # Ordered by batch, then by rank.
        self._parts: list[Batch] = list(itertools.islice(batches, num_batches * self.parallel.world_size))
        self.is_private = trainer_info(config.trainer).is_private
        has_short_weights = any(p.dtype == torch.bfloat16 for p in self.workload.model.parameters())
        self._ways = _WAYS | ({"bfloat16": (config.precision, None)} if has_short_weights else {})
        self.rounding: dict[str, float] = {}
        self.way = {BF16: "bfloat16", TF32: "tf32"}.get(config.precision, "float32")
        self.way = "bfloat16" if has_short_weights else self.way
        self.noise_multiplier = config.noise_multiplier or 1.0
        if self.parallel.rank:
            torch.manual_seed(config.seed + self.parallel.rank)  # each rank has its own noise

    @cached_property
    def names(self) -> list[str]:
        """Names of the trainable parameters."""
        return [n for n, p in self.workload.model.named_parameters() if p.requires_grad]

    def tolerance(self, way: str) -> float:
        """Return the largest relative error that rounding explains."""
        return max(TOLERANCES[way], TOLERANCES[self.computed_in])

    def limit(self, way: str, error: float) -> float:
        """Return the largest relative error that rounding explains, given the one that was found.

        Above the tolerance, the naive loop itself is computed in this way: `rounding` is its error.
        """
        if error > self.tolerance(way) and way != "float64" and way not in self.rounding:
            computed, exact = (self.clipped_mean(self._of_first_batch(how)) for how in (way, "float64"))
            self.rounding[way] = relative_error(computed, exact)
        return max(self.tolerance(way), AS_THE_NAIVE_LOOP * self.rounding.get(way, 0.0))

    def _of_first_batch(self, way: str) -> list[list[Tensor]]:
        workload, (batch, *_) = self.copied(way), self.moved(way)
        precision = self._ways[way][0]
        autocast = torch.autocast(self.config.device, torch.bfloat16, enabled=precision == BF16)
        with products_in(precision), autocast:
            samples = naive_per_sample_gradients(workload.model, workload.loss, batch, self.config.batch_size)
        return [[gradient.double() for gradient in sample] for sample in samples]

    def copied(self, way: str) -> Workload:
        """Return the workload with a copy of its model, so that evaluations do not affect each other."""
        gc.collect()  # the previous copy, which a library's hooks may hold in a cycle
        dtype = self._ways[way][1]
        model = copied(self.workload.model).train()
        return self.workload._replace(model=model._apply(lambda t: as_type(t, self.config.device, dtype)))

    def moved(self, way: str, parts: Sequence[Batch] | None = None) -> list[Batch]:
        """Return batches, by default this rank's, on the device, with floating-point values of this way."""
        parts = self._parts[self.parallel.rank :: self.parallel.world_size] if parts is None else parts
        converted = partial(as_type, device=self.config.device, dtype=self._ways[way][1])
        return [tree_map_only(Tensor, converted, part) for part in parts]

    def trainer(self, way: str, workload: Workload | None = None, **changes: Any) -> TrainerBase:
        """Build the trainer in one of the ways with changed settings, by default on a copy of the model."""
        clipping = self.config.max_grad_norm if self.max_grad_norm is None else self.max_grad_norm
        config = dataclasses.replace(
            self.config, precision=self._ways[way][0], max_grad_norm=clipping, **changes
        )
        return build_trainer(config, workload or self.copied(way))

    @torch.no_grad()
    def probe(self) -> str:
        """Return the least precise type that the model computes in when its weights are float64.

        Raises Undecidable if losses are not finite or change from one forward to the next. If they depend on
        the rest of the batch, raises Wrong for a private trainer, else Undecidable.
        """
        workload = self.copied("float64")
        (batch,) = self.moved("float64", self._parts[:1])

        def losses(batch: Batch) -> Tensor:
            inputs, targets = batch
            return workload.loss(call(workload.model, inputs), targets).double()

        with LeastPrecise() as least:
            together = losses(batch)
        computed_in = str(least.dtype).removeprefix("torch.")
        tolerance = TOLERANCES[computed_in]
        _refuse_nonfinite(int((~together.isfinite()).sum()), self.config.batch_size, "losses", "float64")
        change = _change(together, losses(batch))
        if change > tolerance:
            raise Undecidable(
                f"the losses of one batch change from one forward to the next (by {change:.1e}, relative): "
                "the model or its loss draws random numbers or keeps state"
            )
        alone = [losses(single_sample(batch, index)) for index in range(self.config.batch_size)]
        change = _change(together, torch.cat(alone))
        if change > tolerance:
            what = f"a sample's loss depends on the other samples of its batch (by {change:.1e}, relative)"
            if not self.is_private:
                raise Undecidable(f"{what}: a loop over single samples has another gradient")
            raise Wrong(f"{what}: clipping bounds no sample, and training is not differentially private")
        return computed_in

    def per_sample_gradients(self, *, share: float = 0.5) -> list[list[Tensor]]:
        """Return the naive loop's float64 gradient of every sample of every physical batch.

        Sets `max_grad_norm` to a norm that clips at least this share of them, if the trainer is private: to
        0.9 of a quantile of the norms, since with a norm that clips nothing every trainer would pass. Raises
        Undecidable if there is no one gradient.
        """
        workload, batch_size = self.copied("float64"), self.config.batch_size
        parts = self.moved("float64", self._parts)
        per_sample = [
            gradient
            for part in parts
            for gradient in naive_per_sample_gradients(workload.model, workload.loss, part, batch_size)
        ]
        norms = [float(global_norm(gradient)) for gradient in per_sample]
        nonfinite = sum(not math.isfinite(norm) for norm in norms)
        _refuse_nonfinite(nonfinite, len(norms), "per-sample gradients", "float64")
        (again,) = naive_per_sample_gradients(workload.model, workload.loss, parts[0], 1)
        difference = float(global_norm([a - b for a, b in zip(again, per_sample[0], strict=True)]))
        larger = max(norms[0], float(global_norm(again)))
        if difference > self.tolerance("float64") * larger:
            raise Undecidable(
                f"a sample's gradient changes from one backward to the next (by {difference / larger:.1e}, "
                "relative): the model or its loss draws random numbers or keeps state"
            )
        if not any(norms):
            raise Undecidable("every sample's gradient is zero")
        if self.is_private:
            positive = torch.tensor([norm for norm in norms if norm > 0], dtype=torch.float64)
            self.max_grad_norm = 0.9 * float(positive.quantile(1 - share))
        return per_sample

    def clipped_mean(self, samples: list[list[Tensor]]) -> list[Tensor]:
        """Return the gradient in float64 that a step on these samples must leave with noise off."""
        return clipped_mean(samples, self.max_grad_norm, clip_rule(self.config))

    def error(self, way: str, reference: list[Tensor]) -> float:
        """Return the relative L2 error of the trainer's gradient, computed in one of the ways.

        Raises Undecidable if the losses are not finite, Wrong if only the gradient is not.
        """
        gradients = self.gradients(self.trainer(way), way)
        error = relative_error(gradients, reference)
        if not math.isfinite(error):
            raise Wrong(f"the trainer's gradient is NaN or infinite in {way}, the naive loop's is finite")
        self.limit(way, error)
        return error

    def gradients(
        self, trainer: TrainerBase, way: str, batches: Sequence[Batch] | None = None
    ) -> list[Tensor]:
        """Do a step on these batches (by default all) and return its gradients, zeros where there is none.

        Raises Undecidable if the losses are not finite.
        """
        losses = KeptLosses()
        trainer.run_profiling(self.moved(way) if batches is None else batches, losses)
        nonfinite = self.parallel.total(losses.count_nonfinite())
        _refuse_nonfinite(nonfinite, self.batch_size, "losses", way)
        return gradients_of(trainer.parameters)


def as_type(tensor: Tensor, device: str, dtype: torch.dtype | None) -> Tensor:
    """Move a tensor, and convert real and complex numbers to this real type or to its complex one, if any."""
    if dtype is None:
        return tensor.to(device)
    kind = dtype.to_complex() if tensor.is_complex() else dtype
    return tensor.to(device, kind if tensor.is_complex() or tensor.is_floating_point() else None)


class LeastPrecise(TorchDispatchMode):
    """Records the least precise type that a float64 tensor is converted to on the way."""

    def __init__(self) -> None:
        super().__init__()
        self.dtype = torch.float64

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if torch.float64 in _float_types((args, kwargs)):
            self.dtype = max([self.dtype, *_float_types(result)], key=lambda dtype: torch.finfo(dtype).eps)
        return result


def _float_types(nested: Any) -> set[torch.dtype]:
    tensors = (leaf for leaf in tree_iter(nested) if isinstance(leaf, Tensor))
    return {t.dtype.to_real() for t in tensors if t.is_floating_point() or t.is_complex()}


def _change(before: Tensor, now: Tensor) -> float:
    """Return the largest difference over the largest value; 0 where nothing differs."""
    difference = float((before - now).abs().max())
    return difference and difference / max(float(before.abs().max()), float(now.abs().max()))


def _refuse_nonfinite(count: int, total: int, what: str, way: str) -> None:
    if count:
        raise Undecidable(f"{count} of {total} {what} are NaN or infinite in {way}")
