"""Predicted steps whose GPU mostly waits for the host to issue operators, and what helps them."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dpprof.config.experiment import ExperimentConfig
from dpprof.findings.closeness import is_clearly_less
from dpprof.findings.sentences import Said, said
from dpprof.findings.verdict.finding import Finding
from dpprof.record.figures.step import Bound, LogicalStep
from dpprof.vocabulary.formats import counted
from dpprof.vocabulary.trainers import trainer_info
from dpprof.vocabulary.units import ms

# For steps of which more samples may fit.
LARGER_BATCH = said("help.larger_batch")
# Phases that can work on lists of tensors. One with more operators works on one tensor after the other.
_OF_TENSORS = ("clip", "noise", "optimizer_step")
_MOST_OF_LISTS = 10
# Share of the host's time from which these phases are worth a change.
_MUCH = 0.15


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
    def issued(self) -> Said:
        """Its trainer, its size and the number of operators that the host issues."""
        trainer, operators = self.config.trainer, self.bound.operators
        return said("step", trainer=trainer, size=self.size, operators=operators)

    @property
    def is_private(self) -> bool:
        """True if it trains with differential privacy."""
        return trainer_info(self.config.trainer).is_private


def launch_bound(
    steps: Sequence[PredictedStep],
    larger: Said | None = None,
    fastest: PredictedStep | None = None,
    *,
    place: str = "",
    others: int = 0,
) -> Finding | None:
    """Say which of some steps are launch-bound, with a point for each remedy; None if none is.

    `larger` is what to do for a larger batch, if one may fit. `fastest` is the private step of the same
    training with the lowest predicted time, if there are several. `place` names where the steps are, and
    `others` counts the places with launch-bound steps besides.
    """
    found = [step for step in steps if step.bound.is_launch_bound]
    if not found:
        return None
    shares = [said("waiting", pct=100 * step.bound.host, step=step.issued) for step in found]
    kind = "launches.at_some" if others else "launches.at" if place else "launches"
    points = tuple(_remedies(found, larger, fastest))
    first = said(kind, place=place, others=counted(others, "other place"), shares=shares)
    return Finding((first, said("launches.help")) if points else (first,), points)


def _remedies(
    steps: list[PredictedStep], larger: Said | None, fastest: PredictedStep | None
) -> Iterator[Said]:
    if larger is not None:
        yield larger
    if fastest is not None and (slower := [_took(step) for step in steps if _is_better(fastest, step)]):
        yield said("help.fewer_operators", fastest=_took(fastest), slower=slower)
    if slow := [one for step in steps if (one := _tensor_by_tensor(step)) is not None]:
        yield said("help.lists_of_tensors", slow=slow)
    if any(step.config.world_size == 1 for step in steps):
        is_private = all(step.is_private for step in steps)
        yield said("help.graph" if is_private else "help.graph_or_compiled")


def _took(step: PredictedStep) -> Said:
    return said("took", ms=ms(step.step.seconds or 0.0), step=step.issued)


def _is_better(fastest: PredictedStep, step: PredictedStep) -> bool:
    """Return True if a private step is clearly slower than the fastest and issues more operators."""
    is_slower = is_clearly_less(fastest.step.seconds, step.step.seconds)
    return step.is_private and is_slower and step.bound.operators > fastest.bound.operators


def _tensor_by_tensor(step: PredictedStep) -> Said | None:
    """Tell the share of the host's time in phases that work tensor by tensor; None if it is small.

    Clipping counts if noise does: else it may multiply matrices, which no multi-tensor function does.
    """
    phases = step.step.phases
    slow = [name for name in _OF_TENSORS if name in phases and phases[name].operators > _MOST_OF_LISTS]
    slow = slow if "noise" in slow else [name for name in slow if name != "clip"]
    total, taken = (sum(phases[name].host_s for name in names) for names in (phases, slow))
    if taken <= _MUCH * total:
        return None
    return said(
        "tensor_by_tensor", pct=100 * taken / total, trainer=step.config.trainer, size=step.size, phases=slow
    )
