"""How figures and lists of names are printed, in one place. A figure that is not zero never reads as zero."""

from collections.abc import Sequence

MIB_PER_GIB = 1024
KIB_PER_MIB = 1024
# Smaller sizes are printed in KiB.
_LEAST_MIB = 0.1
_LISTED = 3


def fixed(value: float | None, digits: int) -> str:
    """A figure with a number of decimals, or with two significant digits if the decimals would hide it.

    Empty where nothing was measured.
    """
    if value is None:
        return ""
    least = 10.0 ** min(1 - digits, 0)
    if value and abs(round(value, digits)) < least:
        return f"{value:.2g}"
    return f"{value:,.{digits}f}"


def number(value: float | None) -> str:
    """A figure with three significant digits or more, a small one with two; empty if not measured."""
    if value is None:
        return ""
    return fixed(value, 0 if abs(value) >= 1000 else 1 if abs(value) >= 10 else 2)


def signed(value: float, digits: int = 1) -> str:
    """A difference, with its sign."""
    return f"{'-' if value < 0 else '+'}{fixed(abs(value), digits)}"


def size(mib: float) -> str:
    """A size in MiB as text; below a tenth of a MiB, in KiB."""
    if mib and abs(mib) < _LEAST_MIB:
        return f"{fixed(mib * KIB_PER_MIB, 1)} KiB"
    return f"{fixed(mib, 1)} MiB"


def memory(mib: float, digits: int = 1) -> str:
    """A size in MiB as text in GiB; below one GiB, in MiB."""
    if abs(mib) < MIB_PER_GIB:
        return size(mib)
    return f"{fixed(mib / MIB_PER_GIB, digits)} GiB"


def milliseconds(ms: float) -> str:
    """A time in ms as text."""
    return f"{fixed(ms, 1)} ms"


def listed(names: Sequence[str]) -> str:
    """The first few names, and how many more there are."""
    more = len(names) - _LISTED
    return ", ".join(names[:_LISTED]) + (f" and {more} more" if more > 0 else "")


def joined(names: Sequence[str]) -> str:
    """Names in a sentence: `a, b and c`."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
