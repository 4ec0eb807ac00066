"""An error that training a model raised, and what was going on: what a sentence about its cause rests on."""

from dataclasses import dataclass
from functools import cached_property
from traceback import walk_tb
from types import FrameType

from torch import nn

from dpprof.errors import message_of


@dataclass(frozen=True)
class FailedTraining:
    """An error, the model, and the samples of the batch that it happened with."""

    error: Exception
    model: nn.Module
    batch_size: int

    @cached_property
    def frames(self) -> list[FrameType]:
        """The calls that the error came through, the innermost last."""
        return [frame for frame, _ in walk_tb(self.error.__traceback__)]

    def says(self, kind: type[Exception] | tuple[type[Exception], ...], *texts: str) -> bool:
        """Whether the error is of this kind (or of one of these) and has one of these texts."""
        return isinstance(self.error, kind) and any(text in message_of(self.error) for text in texts)

    def path(self, module: nn.Module) -> str:
        """The dotted path of one of the model's modules."""
        name = next(name for name, each in self.model.named_modules() if each is module)
        return name or "the model"
