"""What a trainer and a pass agree on: the names of the phases, and how a step is observed.

Trainers drive steps and announce them; passes watch. Neither imports the other.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self

from dpprof.config import ExperimentConfig
from dpprof.paths import RunFolder
from dpprof.record import Record

PHASES = (
    "zero_grad",
    "forward",
    "backward",
    "backward_norms",
    "clip",
    "backward_weighted",
    "noise",
    "optimizer_step",
)
# Labels of the ranges that a step leaves in a torch.profiler trace.
PHASE_LABEL = "phase:"
STEP_LABEL = "training_step"


class Observer:
    """Watches training steps. This one does nothing; a pass overrides what it needs."""

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


class Training(Protocol):
    """A model in training, as a pass sees it."""

    def run(self, num_steps: int, observer: Observer) -> None:
        """Do `num_steps` training steps under the observer."""

    def held_bytes(self) -> dict[str, int]:
        """Bytes that the trainer holds now, by category."""

    def drop_gradients(self) -> None:
        """Let go of everything that only the next step's `zero_grad` would free."""


@dataclass(frozen=True)
class Subject:
    """What a pass works on: it builds trainings afresh, and adds what it measured to the record."""

    config: ExperimentConfig
    folder: RunFolder
    record: Record
    build: Callable[[], Training]
