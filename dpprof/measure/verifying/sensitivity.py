"""Checks that no sample moves the sum of clipped gradients by more than `max_grad_norm`.

A batch is trained with and without the sample, as batches of Poisson sampling, which may have any size.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only

from dpprof.errors import describe_error
from dpprof.measure.gradient_check import Case
from dpprof.measure.observe import Observer
from dpprof.measure.trainers.reference import global_norm, gradients_of
from dpprof.measure.verifying.gradients import limit_check
from dpprof.measure.workloads.workload import Batch
from dpprof.record.figures.verdicts import FAIL, PASS, WARNING
from dpprof.record.record import VerifyCheck
from dpprof.vocabulary.messages import is_oom

HUGE = 1e6
# A gradient times this still fits float32, but its square overflows.
OVERFLOWING = 1e25
_LARGE_INPUT = 1e4
# Most samples to remove one by one.
_MOST_SAMPLES = 8
# Changes the tensors of a batch.
_map = partial(tree_map_only, Tensor)


class _Trial:
    """A trainer that takes batches of any size and keeps its weights. Unusable once a weight is NaN."""

    def __init__(self, case: Case) -> None:
        workload = case.copied(case.way)
        self.case = case

        def weighted(outputs: Any, weighted_targets: Any) -> Tensor:
            targets, weights = weighted_targets
            losses = workload.loss(outputs, targets)
            return losses * weights.to(losses)

        self.trainer = case.trainer(case.way, workload._replace(loss=weighted), accumulation_steps=1, lr=0.0)
        # The setting would also ask for empty batches, which not every trainer takes.
        self.trainer.poisson_sampling = True

    def sum_of(self, batch: Batch, weights: Tensor) -> list[Tensor]:
        """Return the sum of a batch's clipped gradients, its losses multiplied by these weights, shape (B,).

        The weights go with the targets, as a trainer may take the loss of a part of the batch.
        """
        inputs, targets = batch
        self.trainer.run_profiling([(inputs, (targets, weights))], Observer())
        found = gradients_of(self.trainer.parameters)
        return [gradient.double() * self.case.batch_size for gradient in found]


@dataclass
class _Batch:
    """A batch, and the sums of all but one of its samples, each computed once."""

    trial: _Trial
    batch: Batch
    _rests: dict[int, list[Tensor]] = field(default_factory=dict)

    def distance(self, index: int, weight: float = 1.0, by: _Trial | None = None) -> float:
        """Return how far a sample moves the sum, over the allowed norm. `by` computes the sum with it."""
        case = self.trial.case
        assert case.max_grad_norm is not None, "only of private trainers"
        weights = torch.ones(case.batch_size)
        if index not in self._rests:
            kept = torch.tensor([i for i in range(case.batch_size) if i != index], dtype=torch.int64)
            rest = _map(lambda t: t[kept.to(t.device)] if t.dim() else t, self.batch)
            self._rests[index] = self.trial.sum_of(rest, weights[kept])
        weights[index] = weight
        whole = (by or self.trial).sum_of(self.batch, weights)
        difference = global_norm([a - b for a, b in zip(whole, self._rests[index], strict=True)])
        return float(difference) / case.max_grad_norm


def checks(case: Case) -> Iterator[VerifyCheck]:
    """Check ordinary samples and every kind of odd one."""
    (batch, *_), size = case.moved(case.way), case.batch_size
    inputs, targets = batch
    every = range(min(size, _MOST_SAMPLES))
    trial = _Trial(case)
    as_it_is = _Batch(trial, batch)
    yield _moved("ordinary", as_it_is, every)
    yield _moved("zero", as_it_is, [0], 0.0)
    yield _moved("huge", as_it_is, every, HUGE)
    yield _moved("constant", _Batch(trial, _map(_all_as_first, batch)), [0])
    tensors = [leaf for leaf in tree_leaves(inputs) if isinstance(leaf, Tensor)]
    if any(map(_is_filled, tensors)):
        yield _moved("repeated", _Batch(trial, (_map(_repeated, inputs), targets)), every[:2])
    if any(map(Tensor.is_floating_point, tensors)):
        yield _moved("large_input", _Batch(trial, (_map(_first_large, inputs), targets)), [0])
    yield _contained("overflow", as_it_is, OVERFLOWING, "a gradient whose squared norm overflows")
    yield _contained("nan", as_it_is, torch.nan, "a NaN loss")
    yield _contained("infinity", as_it_is, torch.inf, "an infinite loss")


def _moved(kind: str, batch: _Batch, indices: Sequence[int], weight: float = 1.0) -> VerifyCheck:
    distances = {index: batch.distance(index, weight) for index in indices}
    index = max(distances, key=lambda i: math.inf if math.isnan(distances[i]) else distances[i])
    what = f"sample {index} of the batch" + (f", its loss multiplied by {weight:g}," if weight != 1 else "")
    said = f"{what} moves the sum by {distances[index]:.4g} x max_grad_norm"
    case = batch.trial.case
    return limit_check(f"sensitivity_{kind}", distances[index], 1 + case.tolerance(case.way), said, said)


def _contained(kind: str, batch: _Batch, weight: float, what: str) -> VerifyCheck:
    """Check that an unclippable sample is refused or moves the sum within the limit; NaN is a warning."""
    case, name = batch.trial.case, f"sensitivity_{kind}"
    trial = _Trial(case)
    before = [p.detach().clone() for p in trial.trainer.parameters]
    try:
        moved = batch.distance(0, weight, by=trial)
    except Exception as error:
        if is_oom(error):
            raise
        if not all(torch.equal(b, p) for b, p in zip(before, trial.trainer.parameters, strict=True)):
            return VerifyCheck(name, FAIL, f"{what} is refused, but the weights have changed")
        return VerifyCheck(name, PASS, f"{what} is refused: {describe_error(error)[:160]}")
    if not math.isfinite(moved):
        parameters = trial.trainer.parameters
        num_lost = sum(not bool(p.isfinite().all()) for p in parameters)
        poisoned = (
            f"a sample with {what} is summed: the step makes {num_lost} of {len(parameters)} weight tensors "
            "NaN. Clipping does not bound that: stop before the step where a loss or a norm is not finite"
        )
        return VerifyCheck(name, WARNING, poisoned)
    said = f"{what} moves the sum by {moved:.4g} x max_grad_norm"
    return limit_check(name, moved, 1 + case.tolerance(case.way), said, said)


def _all_as_first(tensor: Tensor) -> Tensor:
    return tensor[:1].expand_as(tensor).clone() if tensor.dim() else tensor


def _is_filled(tensor: Tensor) -> bool:
    return tensor.dim() > 1 and tensor[0].numel() > 1


def _repeated(tensor: Tensor) -> Tensor:
    if not _is_filled(tensor):
        return tensor
    first = tensor.flatten(1)[:, :1].reshape(-1, *[1] * (tensor.dim() - 1))
    return first.expand_as(tensor).clone()


def _first_large(tensor: Tensor) -> Tensor:
    large = tensor.clone()
    if tensor.is_floating_point() and tensor.dim():
        large[0] *= _LARGE_INPUT
    return large
