"""Figures of an advice as text."""

from dpprof.figures.advice.cost import Cost
from dpprof.vocabulary.formats import fixed, memory, signed
from dpprof.vocabulary.trainers import TRAINER_NAMES
from dpprof.vocabulary.units import mib, ms


def size_of(num_bytes: int, *, is_change: bool = False) -> str:
    """Bytes, or a difference of bytes."""
    text = memory(mib(num_bytes))
    return f"+{text}" if is_change and num_bytes > 0 else text


def time_of(cost: Cost) -> str:
    """The least time in ms; empty where it is not known."""
    return "" if cost.least_s is None else fixed(ms(cost.least_s), 2)


def share_of(now: float, before: float) -> str:
    """A difference in percent; empty where there is nothing to compare with."""
    if not before:
        return ""
    change = 100 * (now / before - 1)
    return "0 %" if abs(change) < 0.05 else f"{signed(change)} %"


def compared(now: float, before: float, less: str, more: str, same: str) -> str:
    """A difference in percent, in words: `3.1 % fewer FLOPs`."""
    share = share_of(now, before)
    if share in ("", "0 %"):
        return same
    return f"{share[1:]} {less if share[0] == '-' else more}"


def capital(text: str) -> str:
    """A sentence's beginning; names of options and of trainers stay as they are."""
    first = text.partition(" ")[0].rstrip(",")
    is_name = "_" in first or first in TRAINER_NAMES or any(letter.isdigit() for letter in first)
    return text if is_name else text[:1].upper() + text[1:]
