"""A finding: what is said on one topic."""

from dataclasses import dataclass
from typing import Self

from dpprof.findings.sentences import EXPLAINING, TOPICS, Said, said


@dataclass(frozen=True)
class Finding:
    """Sentences on a topic, the first of which names it, and the points behind them."""

    said: tuple[Said, ...]
    points: tuple[Said, ...] = ()

    @classmethod
    def of(cls, kind: str, **values: object) -> Self:
        """Make a finding of one sentence without points."""
        return cls((said(kind, **values),))

    @property
    def kind(self) -> str:
        """Kind of its first sentence."""
        return self.said[0].kind

    @property
    def topic(self) -> str:
        """Topic in a word or two."""
        return TOPICS[self.kind.partition(".")[0]]

    @property
    def text(self) -> str:
        """All sentences."""
        return " ".join(map(str, self.said))

    @property
    def explains(self) -> bool:
        """True if it explains figures and recommends nothing."""
        return self.kind.partition(".")[0] in EXPLAINING

    @property
    def trainer(self) -> str:
        """Trainer that it says to use; empty if it says of none."""
        return str(self.said[0].values["trainer"]) if self.kind.startswith("use.") else ""
