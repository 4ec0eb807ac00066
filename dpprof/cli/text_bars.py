"""Bars of characters."""

_EIGHTHS = " ▏▎▍▌▋▊▉"


def bar(value: float | None, longest: float, width: int, *, ascii_only: bool = False) -> str:
    """A bar of up to `width` characters, which stand for `longest`. What is not zero is always seen."""
    if not value or longest <= 0:
        return ""
    share = min(value / longest, 1.0)
    if ascii_only:
        return "#" * max(round(share * width), 1)
    full, part = divmod(max(round(share * width * 8), 1), 8)
    return "█" * full + (_EIGHTHS[part] if part else "")
