"""How a training step is observed: what a trainer and a pass agree on.

Trainers drive steps and say what they do; passes watch. Neither imports the other.
"""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from dpprof.config.experiment import ExperimentConfig
from dpprof.record.folder import RunFolder
from dpprof.record.record import Record

if TYPE_CHECKING:
    from torch import Size, Tensor, nn

    from dpprof.vocabulary.norm_forms import NormCost

    # Tensors with the names of the parameters that they belong to, or whatever tells what they are.
    NamedTensors = Iterable[tuple[str, Tensor]]


class Observer:
    """Watches training steps. This one does nothing; a pass overrides what it needs.

    `follows_tensors` asks the trainer to label, by `label` and `label_new`, tensors that it does not hold
    itself: those that live and die inside a library's functions.
    """

    follows_tensors = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def step(self) -> AbstractContextManager[Any]:
        """Surrounds one whole training step."""
        return nullcontext()

    def phase(self, name: str) -> AbstractContextManager[Any]:
        """Surrounds one phase of a step; a phase may occur several times in a step."""
        return nullcontext()

    def losses(self, losses: "Tensor") -> None:
        """These are the losses of one physical batch, shape (B,), in the graph that backward goes through."""

    def label(self, category: str, tensors: "NamedTensors") -> None:
        """These tensors belong to a category, and have done so since they were made."""

    def label_new(
        self, category: str, accepts: "Callable[[Size], bool] | None" = None
    ) -> AbstractContextManager[Any]:
        """Surrounds what makes tensors of a category: new ones belong to it unless `label` says otherwise.

        `accepts` tells by its shape whether a tensor is one of them.
        """
        return nullcontext()


class Training(Protocol):
    """A model in training, as a pass sees it."""

    def run(self, num_steps: int, observer: Observer) -> None:
        """Do `num_steps` training steps under the observer."""

    @property
    def model(self) -> "nn.Module":
        """The model, as the workload made it."""

    @property
    def num_samples(self) -> list[int]:
        """The samples of each batch so far, where they vary."""

    def held_tensors(self) -> "dict[str, list[tuple[str, Tensor]]]":
        """The tensors that the trainer holds now, with names, by category."""

    def drop_gradients(self) -> None:
        """Let go of everything that only the next step would free."""

    @property
    def norm_costs(self) -> "dict[str, NormCost]":
        """The form of each weight's norm, by parameter, where the trainer chooses one."""

    @property
    def savings(self) -> tuple[str, ...]:
        """The savings of `loops.SAVINGS` that its loop leaves unmade."""

    def save(self, savings: Iterable[str]) -> None:
        """Make these savings, and no others, from the next step on."""


class Build(Protocol):
    """Builds a training afresh; `is_timed` if its steps are to be timed."""

    def __call__(self, *, is_timed: bool = False) -> Training:
        """A training that has done no step yet."""


@dataclass(frozen=True)
class Subject:
    """What a pass works on: it builds trainings afresh, and adds what it measured to the record."""

    config: ExperimentConfig
    folder: RunFolder
    record: Record
    build: Build
