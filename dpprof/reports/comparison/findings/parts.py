"""What a difference between two sums is made of."""

from dataclasses import dataclass

from dpprof.reports.colors import words
from dpprof.vocabulary.formats import signed

BOTH_BACKWARDS = "backward"
BACKWARDS = (BOTH_BACKWARDS, "backward_norms", "backward_weighted")
_LISTED = 3
# Parts smaller than this share of a difference are not worth a word.
_SMALL = 0.05


@dataclass(frozen=True)
class Parts:
    """A difference, its largest parts by name, and what these leave of it: None if not worth a word."""

    difference: float
    named: dict[str, float]
    rest: float | None

    def __str__(self) -> str:
        told = [f"{words(name)} {signed(part)}" for name, part in self.named.items()]
        if self.rest is not None:
            told.append(f"the rest {signed(self.rest)}")
        return ", ".join(told) or "many small parts"


def parts_of(more: dict[str, float], less: dict[str, float], difference: float) -> Parts:
    """The parts of a difference that the sums of `more` and `less` need not add up to."""
    least = _SMALL * abs(difference)
    largest = all_parts(more, less)[:_LISTED]
    named = {name: part for name, part in largest if abs(part) > least}
    rest = difference - sum(named.values())
    return Parts(difference, named, rest if named and abs(rest) > least else None)


def all_parts(more: dict[str, float], less: dict[str, float]) -> list[tuple[str, float]]:
    """Every part of the difference between two sums, the largest first."""
    names = dict.fromkeys([*more, *less])
    parts = [(name, more.get(name, 0.0) - less.get(name, 0.0)) for name in names]
    return sorted(parts, key=lambda part: -abs(part[1]))


def fold_backward(by_phase: dict[str, float]) -> dict[str, float]:
    """Phases with the two backward passes of an algorithm taken together."""
    folded: dict[str, float] = {}
    for phase, value in by_phase.items():
        name = BOTH_BACKWARDS if phase in BACKWARDS else phase
        folded[name] = folded.get(name, 0.0) + value
    return folded
