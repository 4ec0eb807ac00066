"""A finding: the sentences that say it."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Finding:
    """One statement on a topic, and the points behind it.

    `explains` marks what explains figures and recommends nothing; `trainer` is the one that it recommends.
    """

    topic: str
    text: str
    points: list[str] = field(default_factory=list)
    explains: bool = False
    trainer: str = ""
