"""How far one sample moves the sum of clipped gradients, whatever it is: by `max_grad_norm` at most.

A batch is trained with and without the sample, as batches of Poisson sampling, which may have any size.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from dpprof.config.measuring import SAMPLED_WARMUP_STEPS, MeasuringConfig
from dpprof.errors import describe_error
from dpprof.figures.gradient_verdict import FAIL, PASS
from dpprof.figures.verify_verdict import WARNING
from dpprof.measure.gradient_check import WAYS
from dpprof.measure.observe import Observer
from dpprof.measure.trainers.base import TrainerBase
from dpprof.measure.trainers.reference import global_norm
from dpprof.measure.verifying.setting import Setting, held_against
from dpprof.measure.workloads.workload import Batch
from dpprof.record.verify import VerifyCheck
from dpprof.vocabulary.out_of_memory import is_oom

HUGE = 1e6
# The square of a gradient multiplied by this is beyond float32, and the gradient is not.
OVERFLOWING = 1e25
_LARGE_INPUT = 1e4
# As many samples are removed one by one, at most, where each is tried.
_MOST_SAMPLES = 8


class _Weighted:
    """A loss that multiplies each sample's by a weight."""

    def __init__(self, loss: Callable[[Any, Any], Tensor]) -> None:
        self.loss = loss
        self.weights: Tensor | None = None

    def __call__(self, outputs: Any, targets: Any) -> Tensor:
        """The losses, shape (B,)."""
        losses = self.loss(outputs, targets)
        return losses if self.weights is None else losses * self.weights.to(losses)


@dataclass
class _Trial:
    """A trainer that takes batches of any size and does not move the weights."""

    setting: Setting
    loss: _Weighted
    trainer: TrainerBase

    @classmethod
    def of(cls, setting: Setting) -> "_Trial":
        case = setting.case
        workload = case.copied(WAYS[setting.way][1])
        loss = _Weighted(workload.loss)
        trainer = case.trainer(
            setting.way,
            workload._replace(loss=loss),
            setting.max_grad_norm,
            accumulation_steps=1,
            poisson_sampling=True,
            lr=0.0,
            how=MeasuringConfig(warmup_steps=SAMPLED_WARMUP_STEPS),
        )
        return cls(setting, loss, trainer)

    def sum_of(self, batch: Batch, weights: Tensor) -> list[Tensor]:
        """The sum of the clipped gradients of a batch whose losses have these weights."""
        self.loss.weights = weights
        self.trainer.run_profiling([batch], Observer())
        found = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.trainer.parameters]
        return [gradient.double() * self.setting.batch_size for gradient in found]


def checks(setting: Setting) -> Iterator[VerifyCheck]:
    """Of ordinary samples and of every kind of odd one."""
    (batch, *_), size = setting.case.moved(WAYS[setting.way][1]), setting.batch_size
    inputs, targets = batch
    ones, every = torch.ones(size), range(min(size, _MOST_SAMPLES))
    equal = tree_map(_all_as_first, batch)
    yield _moved(setting, "ordinary", batch, every, ones)
    yield _moved(setting, "zero", batch, (0,), _but_one(size, 0, 0.0))
    yield _moved(setting, "huge", batch, every, ones, HUGE)
    yield _moved(setting, "constant", equal, (0,), ones)
    if any(_is_filled(leaf) for leaf in tree_leaves(inputs)):
        repeated = (tree_map(_repeated, inputs), targets)
        yield _moved(setting, "repeated", repeated, every, ones)
    if any(isinstance(leaf, Tensor) and leaf.is_floating_point() for leaf in tree_leaves(inputs)):
        yield _moved(setting, "large_input", (tree_map(_first_large, inputs), targets), (0,), ones)
    yield _contained(setting, "overflow", batch, OVERFLOWING, "a gradient whose squared norm overflows")
    yield _contained(setting, "nan", batch, torch.nan, "a NaN loss")
    yield _contained(setting, "infinity", batch, torch.inf, "an infinite loss")


def _moved(
    setting: Setting,
    kind: str,
    batch: Batch,
    removed: "range | tuple[int, ...]",
    weights: Tensor,
    boost: float | None = None,
) -> VerifyCheck:
    """Removing each of these samples alone; with `boost` its loss is multiplied by that before."""
    trial, name, farthest = _Trial.of(setting), f"sensitivity_{kind}", (-1.0, 0)
    for index in removed:
        with_it = _but_one(len(weights), index, boost) if boost is not None else weights
        distance = _distance(trial, batch, index, with_it)
        if not distance <= farthest[0]:  # NaN too
            farthest = (distance, index)
        if distance != distance:
            break
    moved, index = farthest
    by = f"moves the sum by {moved:.4g} x max_grad_norm"
    what = f"removing sample {index} of the batch" if boost is None else _boosted(index, boost)
    return held_against(name, moved, 1 + setting.tolerance(setting.way), f"{what} {by}", f"{what} {by}")


def _boosted(index: int, boost: float) -> str:
    return f"sample {index}, its gradient multiplied by {boost:.0e},"


def _distance(trial: _Trial, batch: Batch, index: int, weights: Tensor) -> float:
    """How far the sum moves without a sample, over the norm that is allowed."""
    all_of_it = trial.sum_of(batch, weights)
    kept = torch.tensor([i for i in range(len(weights)) if i != index])
    rest = trial.sum_of(tree_map(lambda t: _taken(t, kept), batch), weights[kept])
    assert trial.setting.max_grad_norm is not None, "only of private trainers"
    difference = global_norm([a - b for a, b in zip(all_of_it, rest, strict=True)])
    return float(difference) / trial.setting.max_grad_norm


def _contained(setting: Setting, kind: str, batch: Batch, weight: float, what: str) -> VerifyCheck:
    """What becomes of a batch with a sample that cannot be clipped: it is refused, or moves the sum no
    farther than any other. Where it makes the sum NaN, that is a warning.
    """
    trial, name = _Trial.of(setting), f"sensitivity_{kind}"
    before = [p.detach().clone() for p in trial.trainer.parameters]
    try:
        moved = _distance(trial, batch, 0, _but_one(setting.batch_size, 0, weight))
    except Exception as error:
        if is_oom(error):
            raise
        moved_by_it = zip(before, trial.trainer.parameters, strict=True)
        if not all(torch.equal(b, p) for b, p in moved_by_it):
            return VerifyCheck(name, FAIL, f"{what} is refused, but the weights have changed")
        return VerifyCheck(name, PASS, f"{what} is refused: {describe_error(error)[:160]}")
    if moved != moved or moved == torch.inf:
        return VerifyCheck(name, WARNING, _poisoned(trial, what))
    said = f"{what} moves the sum by {moved:.4g} x max_grad_norm"
    return held_against(name, moved, 1 + setting.tolerance(setting.way), said, said)


def _poisoned(trial: _Trial, what: str) -> str:
    parameters = trial.trainer.parameters
    num_lost = sum(not p.isfinite().all() for p in parameters)
    return (
        f"{what} of one sample is summed: the step makes {num_lost} of {len(parameters)} weight tensors NaN. "
        "That one sample ends the training for all, and clipping does not bound what it changes: stop before "
        "the step where a loss or a norm is not finite"
    )


def _but_one(size: int, index: int, weight: float) -> Tensor:
    weights = torch.ones(size)
    weights[index] = weight
    return weights


def _taken(leaf: Any, kept: Tensor) -> Any:
    has_samples = isinstance(leaf, Tensor) and leaf.dim() > 0
    return leaf[kept.to(leaf.device)] if has_samples else leaf


def _all_as_first(leaf: Any) -> Any:
    has_samples = isinstance(leaf, Tensor) and leaf.dim() > 0
    return leaf[:1].expand_as(leaf).clone() if has_samples else leaf


def _is_filled(leaf: Any) -> bool:
    """Whether a tensor has several numbers for each sample."""
    return isinstance(leaf, Tensor) and leaf.dim() > 1 and leaf[0].numel() > 1


def _repeated(leaf: Any) -> Any:
    if not _is_filled(leaf):
        return leaf
    first = leaf.flatten(1)[:, :1].reshape(-1, *[1] * (leaf.dim() - 1))
    return first.expand_as(leaf).clone()


def _first_large(leaf: Any) -> Any:
    if not isinstance(leaf, Tensor) or not leaf.is_floating_point() or leaf.dim() == 0:
        return leaf
    large = leaf.clone()
    large[0] *= _LARGE_INPUT
    return large
