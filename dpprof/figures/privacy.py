"""The privacy guarantee of a run as figures with names, and in words."""

import math
from collections.abc import Iterator

from dpprof.figures.metric import Metric
from dpprof.record.privacy import PrivacyResult

_GROUP = "privacy"
EPSILON, DELTA = f"{_GROUP}/epsilon", f"{_GROUP}/delta"
NOISE, RATE, STEPS = (f"{_GROUP}/{key}" for key in ("noise_multiplier", "sample_rate", "steps"))


def privacy_metrics(found: PrivacyResult) -> Iterator[Metric]:
    """What was asked, and epsilon where there is one."""
    yield Metric(_GROUP, "epsilon", found.epsilon)
    yield Metric(_GROUP, "delta", found.delta)
    yield Metric(_GROUP, "noise_multiplier", found.noise_multiplier)
    yield Metric(_GROUP, "sample_rate", found.sample_rate)
    yield Metric(_GROUP, "steps", found.steps)


def headline(found: PrivacyResult) -> str:
    """Epsilon in few words, or why there is none."""
    if found.epsilon is None:
        return f"no epsilon: {found.why_none}"
    return f"epsilon {rounded_up(found.epsilon)} at delta {found.delta:g}"


def question(found: PrivacyResult) -> str:
    """What the accountant was asked."""
    return (
        f"{found.steps:,} steps at sample rate {found.sample_rate:.4g} with noise multiplier "
        f"{found.noise_multiplier:g}"
    )


def privacy_words(found: PrivacyResult) -> str:
    """All of it in one line: the answer, what was asked, and what weakens it."""
    by = f" by {found.accountant.upper()}" if found.accountant else ""
    return "; ".join([f"{headline(found)}{by}", question(found), *found.weakened])


def rounded_up(epsilon: float) -> str:
    """Four significant digits, never less than epsilon is."""
    if epsilon == 0:
        return "0"
    unit = 10.0 ** (math.floor(math.log10(epsilon)) - 3)
    return f"{math.ceil(epsilon / unit - 1e-9) * unit:.4g}"
