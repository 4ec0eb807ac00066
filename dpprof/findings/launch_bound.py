"""Predicted steps whose GPU mostly waits for the host to issue operators, and what helps them."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dpprof.config.experiment import ExperimentConfig
from dpprof.findings.closeness import is_clearly_less
from dpprof.findings.verdict.finding import Finding
from dpprof.record.figures.step import Bound, LogicalStep
from dpprof.vocabulary.formats import joined, listed, milliseconds
from dpprof.vocabulary.trainers import short_name, trainer_info
from dpprof.vocabulary.units import ms

# For steps of which more samples may fit.
LARGER_BATCH = (
    "Take a larger physical batch if one fits (`dpprof fit` finds the largest): most trainers issue as many "
    "operators for more samples."
)
_GRAPH = (
    "Replay the step as a CUDA graph (`torch.cuda.graph`{}), which the host launches at once. All shapes "
    "must stay the same, so fill up Poisson-sampled batches, and nothing may wait for data, as `.item()` and "
    "`torch.unique` do. Predictions do not include this."
)
_COMPILED = ', or without privacy `torch.compile(mode="reduce-overhead")`'
# Phases that can work on lists of tensors. One with more operators works on one tensor after the other.
_OF_TENSORS = ("clip", "noise", "optimizer_step")
_MOST_OF_LISTS = 10
# Share of the host's time from which these phases are worth a change.
_MUCH = 0.15
_LISTED = 6


class PredictedStep(NamedTuple):
    """An experiment with its predicted step, and its size where steps differ."""

    config: ExperimentConfig
    step: LogicalStep
    size: str = ""

    @property
    def bound(self) -> Bound:
        """Shares of it by what bounds it; all 0 if they are not predicted."""
        return self.step.bound or Bound(0.0, 0.0, 0.0, 0)

    @property
    def name(self) -> str:
        """Its trainer and its size."""
        return f"{short_name(self.config.trainer)}{self.size}"

    @property
    def issued(self) -> str:
        """Its name and the number of operators that the host issues."""
        return f"{self.name} ({self.bound.operators:,} operators)"

    @property
    def is_private(self) -> bool:
        """True if it trains with differential privacy."""
        return trainer_info(self.config.trainer).is_private


def launch_bound(
    steps: Sequence[PredictedStep], where: str = "", larger: str = "", fastest: PredictedStep | None = None
) -> Finding | None:
    """Say which of some steps are launch-bound, with a point for each remedy; None if none is.

    `where` opens the sentence with their place. `larger` is what to do for a larger batch, if one may fit.
    `fastest` is the private step of the same training with the lowest predicted time, if there are several.
    """
    found = [step for step in steps if step.bound.is_launch_bound]
    if not found:
        return None
    shares = [f"{100 * step.bound.host:.0f} % with {step.issued}" for step in found]
    text = (
        f"{where}the GPU is predicted to wait more than half of the step for the host to issue operators: "
        f"{listed(shares, _LISTED)}."
    )
    points = list(_remedies(found, larger, fastest))
    return Finding("Launch-bound", text[0].upper() + text[1:] + " What helps:" * bool(points), points)


def _remedies(steps: list[PredictedStep], larger: str, fastest: PredictedStep | None) -> Iterator[str]:
    if larger:
        yield larger
    if fastest is not None and (slower := [_took(step) for step in steps if _is_better(fastest, step)]):
        against = f"{_took(fastest)} against {joined(slower)}"
        yield f"Train with fewer operators. By prediction, a step takes {against}."
    if told := [text for step in steps if (text := _tensor_by_tensor(step))]:
        yield (
            "Clip, add noise and update by multi-tensor functions (`torch._foreach_add_`) or on one flat "
            f"buffer. Tensor by tensor, these phases take much of the host's time: {listed(told, _LISTED)}."
        )
    if any(step.config.world_size == 1 for step in steps):
        yield _GRAPH.format("" if all(step.is_private for step in steps) else _COMPILED)


def _took(step: PredictedStep) -> str:
    return f"{milliseconds(ms(step.step.seconds or 0.0))} with {step.issued}"


def _is_better(fastest: PredictedStep, step: PredictedStep) -> bool:
    """Return True if a private step is clearly slower than the fastest and issues more operators."""
    is_slower = is_clearly_less(fastest.step.seconds, step.step.seconds)
    return step.is_private and is_slower and step.bound.operators > fastest.bound.operators


def _tensor_by_tensor(step: PredictedStep) -> str:
    """Tell the share of the host's time in phases that work tensor by tensor; empty if it is small.

    Clipping counts if noise does: else it may multiply matrices, which no multi-tensor function does.
    """
    phases = step.step.phases
    slow = [name for name in _OF_TENSORS if name in phases and phases[name].operators > _MOST_OF_LISTS]
    slow = slow if "noise" in slow else [name for name in slow if name != "clip"]
    total, taken = (sum(phases[name].host_s for name in names) for names in (phases, slow))
    return f"{100 * taken / total:.0f} % with {step.name} ({joined(slow)})" if taken > _MUCH * total else ""
