"""The privacy guarantee of a run in words."""

import math

from dpprof.record.record import PrivacyResult


def headline(found: PrivacyResult) -> str:
    """Say epsilon in a few words, or why there is none."""
    if found.epsilon is None:
        return f"no epsilon: {found.why_none}"
    return f"epsilon {rounded_up(found.epsilon)} at delta {found.delta:g}"


def privacy_words(found: PrivacyResult) -> str:
    """Describe the guarantee in one line: epsilon, the accountant's inputs, and what weakens it."""
    by = f" by {found.accountant.upper()}" if found.accountant else ""
    sampled = f"{found.steps:,} steps at sample rate {found.sample_rate:.4g}"
    question = f"{sampled} with noise multiplier {found.noise_multiplier:g}"
    return "; ".join([f"{headline(found)}{by}", question, *found.weakened])


def rounded_up(epsilon: float) -> str:
    """Round epsilon up to four significant digits."""
    if epsilon == 0:
        return "0"
    unit = 10.0 ** (math.floor(math.log10(epsilon)) - 3)
    return f"{math.ceil(epsilon / unit - 1e-9) * unit:.4g}"
