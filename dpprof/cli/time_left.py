"""How long something takes, and how long it will take yet: plain arithmetic and words."""

import statistics
from collections.abc import Sequence


def seconds_left(
    finished: Sequence[float], running: Sequence[float], num_waiting: int, at_a_time: int
) -> float | None:
    """The seconds until everything is done, from the seconds that finished tasks took and that running ones
    have taken so far, `at_a_time` of them together. None until one has finished.
    """
    if not finished:
        return None
    each = statistics.fmean(finished)
    work = sum(max(each - taken, 0.0) for taken in running) + each * num_waiting
    return work / max(min(at_a_time, len(running) + num_waiting), 1)


def duration(seconds: float) -> str:
    """Seconds as a reader says them: `45 s`, `4 min 12 s`, `1 h 3 min`."""
    minutes, rest = divmod(round(seconds), 60)
    if not minutes:
        return f"{rest} s"
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def left(seconds: float) -> str:
    """An estimate of seconds, no finer than it deserves."""
    minutes = round(seconds / 60)
    if minutes < 1:
        return "less than a minute left"
    return f"about {minutes} min left" if minutes < 60 else f"about {duration(60 * minutes)} left"
