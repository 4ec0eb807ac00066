"""Times that are too close to call, and which trainer to take then."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from dpprof.record.figures.step import MEASURED
from dpprof.vocabulary.trainers import trainer_info

T = TypeVar("T")

# Relative differences below which times do not tell which step is faster. Measured ones vary, and are scaled
# to other batches.
MEASURED_DOUBT, PREDICTED_DOUBT = 0.1, 0.2


def doubt_of(basis: str) -> float:
    """Return the relative difference below which times of a basis do not tell which is less."""
    return MEASURED_DOUBT if basis == MEASURED else PREDICTED_DOUBT


def is_clearly_less(seconds: float | None, than: float | None, doubt: float = PREDICTED_DOUBT) -> bool:
    """Tell whether a time is less than another one beyond doubt; False if one is not known."""
    return seconds is not None and than is not None and seconds * (1 + doubt) < than


def too_close(options: Sequence[T], seconds: Callable[[T], float], doubt: float = PREDICTED_DOUBT) -> list[T]:
    """Return the options whose time cannot be told from the least one, which is among them."""
    least = min(map(seconds, options), default=0.0)
    return [one for one in options if not is_clearly_less(least, seconds(one), doubt)]


def elsewhere(trainer: str) -> float:
    """Return a trainer's time relative to standard training where all were measured; inf if it was not."""
    return trainer_info(trainer).times_standard or math.inf


def all_known(trainers: Iterable[str]) -> bool:
    """Tell whether there are several trainers, and all were measured elsewhere."""
    names = set(trainers)
    return len(names) > 1 and all(elsewhere(name) < math.inf for name in names)
