"""What was seen of one step of a model as it is, and the traps that follow from it: plain data."""

from dataclasses import dataclass, field
from typing import NamedTuple

from torch import nn


class Trap(NamedTuple):
    """What a trainer stumbles on: its name, the sentence that says so, the module at fault.

    A `warning` does not keep the model from training.
    """

    name: str
    text: str
    module: str
    is_warning: bool = False


class Call(NamedTuple):
    """One call of a module with gradients on: the tensors that it got by position, and the names of others.

    `has_flat_rows` tells whether the first one, with all but its first dimension flattened, can be viewed
    as a column; `in_backward` whether a checkpoint called the module again there.
    """

    module: nn.Module
    shapes: tuple[tuple[int, ...], ...]
    keywords: tuple[str, ...]
    has_flat_rows: bool
    in_backward: bool


class Change(NamedTuple):
    """An operator that changed a module's output in place: inside which module (None: in the loss), where."""

    module: nn.Module | None
    place: str


@dataclass
class WatchedStep:
    """What was seen.

    `drawing` holds the innermost module (None: the loss) of every draw of random numbers, `random` all
    modules that ran meanwhile.
    """

    model: nn.Module
    batch_size: int
    calls: list[Call] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    random: set[nn.Module] = field(default_factory=set)
    drawing: list[nn.Module | None] = field(default_factory=list)

    def path(self, module: nn.Module) -> str:
        """The dotted path of one of the model's modules."""
        return next(name for name, each in self.model.named_modules() if each is module) or "the model"

    def calls_of(self, module: nn.Module) -> list[Call]:
        """A module's calls, in order."""
        return [each for each in self.calls if each.module is module]

    @staticmethod
    def has_gradient(parameters: list[nn.Parameter]) -> bool:
        """Whether backward reached any of the parameters."""
        return any(p.grad is not None for p in parameters)
