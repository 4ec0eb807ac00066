"""The interface between trainers and passes, neither of which imports the other."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from torch import Size, Tensor


class Observer:
    """Observes training steps. This one does nothing; a pass overrides what it needs.

    `follows_tensors` asks the trainer to label tensors that live and die inside a library's functions too.
    """

    follows_tensors = False

    def step(self) -> AbstractContextManager[Any]:
        """Surround one whole training step."""
        return nullcontext()

    def phase(self, name: str) -> AbstractContextManager[Any]:
        """Surround one phase of a step; a phase may occur several times in a step."""
        return nullcontext()

    def losses(self, losses: Tensor) -> None:
        """Receive one physical batch's losses, shape (B,), in the graph that backward goes through."""

    def label(self, category: str, tensors: Iterable[tuple[str, Tensor]]) -> None:
        """Assign tensors, with their parameters' names, to a category, from their creation on."""

    def label_new(
        self, category: str, accepts: Callable[[Size], bool] | None = None
    ) -> AbstractContextManager[Any]:
        """Assign new tensors whose shape it `accepts` to a category, unless `label` says otherwise."""
        return nullcontext()
