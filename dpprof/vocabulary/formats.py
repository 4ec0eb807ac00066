"""Format figures and lists of names. A figure that is not zero is never shown as zero."""

from collections.abc import Collection, Iterable, Sequence
from functools import partial

# Each of bytes, KiB, MiB and GiB is so many of the one before.
_NEXT = 1024
_LEAST = 0.1
_LISTED = 3


def fixed(value: float | None, digits: int) -> str:
    """Format a figure with `digits` decimals, or 2 significant digits if these hide it; empty if None."""
    if value is None:
        return ""
    least = 10.0 ** min(1 - digits, 0)
    if value and abs(round(value, digits)) < least:
        return f"{value:.2g}"
    return f"{value:,.{digits}f}"


def number(value: float | None) -> str:
    """Format a figure with at least three significant digits, a small one with two; empty if None."""
    if value is None:
        return ""
    return fixed(value, 0 if abs(value) >= 1000 else 1 if abs(value) >= 10 else 2)


def short(value: float) -> float:
    """Round a number to the digits that a chart can show."""
    return float(f"{value:.6g}")


def signed(value: float | None, digits: int = 1) -> str:
    """Format a difference with its sign; empty if None."""
    if value is None:
        return ""
    return f"{'-' if value < 0 else '+'}{fixed(abs(value), digits)}"


def size(mib: float) -> str:
    """Format a size in MiB; below 0.1 MiB in KiB, and below 0.1 KiB in bytes."""
    kib = mib * _NEXT
    if kib and abs(kib) < _LEAST:
        return f"{fixed(kib * _NEXT, 0)} B"
    if mib and abs(mib) < _LEAST:
        return f"{fixed(kib, 1)} KiB"
    return f"{fixed(mib, 1)} MiB"


def memory(mib: float, digits: int = 1) -> str:
    """Format a size given in MiB in GiB; below 1 GiB in MiB."""
    if abs(mib) < _NEXT:
        return size(mib)
    return f"{fixed(mib / _NEXT, digits)} GiB"


def milliseconds(ms: float) -> str:
    """Format a time in ms."""
    return f"{fixed(ms, 1)} ms"


def listed(names: Sequence[str], most: int = _LISTED) -> str:
    """List the first few names, and how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def joined(names: Sequence[str]) -> str:
    """Join names in a sentence: `a, b and c`."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


one, two = (partial(fixed, digits=digits) for digits in (1, 2))


def whole(number: int | None) -> str:
    """Format a whole number; empty if None."""
    return "" if number is None else f"{number:,}"


def counted(number: int, one: str, several: str = "") -> str:
    """Return a number of things: `1 experiment`, `16 experiments`."""
    return f"{number:,} {one if number == 1 else several or f'{one}s'}"


def listed_first(names: Iterable[str], listed: Iterable[str]) -> list[str]:
    """Sort names as a table lists them, unlisted ones last in order of appearance; each once."""
    found = list(dict.fromkeys(names))
    return [name for name in dict.fromkeys([*listed, *found]) if name in found]


def markdown_table(header: list[str], rows: list[list[str]], right: int | Collection[int] = ()) -> str:
    """Return a padded Markdown table; right-aligned are the columns in `right`, or all from that index on."""
    right = range(right, len(header)) if isinstance(right, int) else right
    cells = [[escape(text) for text in line] for line in [header, *rows]]
    widths = [max(3, *(len(line[i]) for line in cells)) for i in range(len(header))]
    rule = ["-" * (width - 1) + ":" if i in right else "-" * width for i, width in enumerate(widths)]
    padded = [
        [text.rjust(width) if i in right else text.ljust(width) for i, (text, width) in enumerate(pairs)]
        for pairs in (list(zip(line, widths, strict=True)) for line in [cells[0], rule, *cells[1:]])
    ]
    return "\n".join("| " + " | ".join(line) + " |" for line in padded) + "\n"


def escape(text: str) -> str:
    """Escape a text so that it cannot end a table cell or become a tag."""
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")
