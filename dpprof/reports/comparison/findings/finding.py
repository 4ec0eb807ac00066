"""A finding: what was found, as data, and the sentences that say it."""

from dataclasses import dataclass, field
from typing import Generic, TypeVar

D = TypeVar("D", covariant=True)


@dataclass(frozen=True)
class Finding(Generic[D]):
    """What the figures say of a topic, in a sentence, with the points behind it and the data of it all."""

    topic: str
    text: str
    data: D
    points: list[str] = field(default_factory=list)
