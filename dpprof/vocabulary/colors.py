"""Colours of trainers, categories, operator classes and phases: on a page each colour means one thing.

Each group has its own hues: trainers have Okabe and Ito's strong blue, green and vermilion, memory categories
earth, green and light blue, phases and operator classes purple and pink. Neighbours in a group differ for
colour-blind readers too, on light and dark pages. A class that does the work of one phase has its colour.
Unlisted names, such as a phase of another package's trainer, are grey.
"""

from zlib import crc32

from dpprof.vocabulary.trainer_info import SYMBOLS, UNLISTED_COLOR
from dpprof.vocabulary.trainers import BUILT_IN, trainer_info


class _Colors(dict[str, str]):
    """Colours by name; unlisted names are grey."""

    def __missing__(self, name: str) -> str:
        return UNLISTED_COLOR


CATEGORY_COLORS = _Colors(
    parameters="#a6997f",
    gathered_parameters="#2e6a57",
    buffers="#d9cca9",
    optimizer_state="#5d4a29",
    inputs="#c6fdfd",
    outputs="#8f6845",
    activations="#28b9ed",
    gradients="#6eb44b",
    summed_gradients="#b4ffbc",
    per_sample_gradients="#fec846",
    output_gradients="#00e4a8",
    gradient_norms="#aaa322",
    gram_matrices="#d03d50",
    clip_factors="#fef18e",
    noise="#feb3ac",
    communication="#7c9a1c",
    temporary="#1f6273",
    other="#353535",
    untracked="#ffffff",
)
PHASE_COLORS = _Colors(
    zero_grad="#dbc5e3",
    forward="#b7a1eb",
    backward="#614294",
    backward_norms="#c93fd8",
    clip="#e74f88",
    backward_weighted="#933a88",
    noise="#e190a3",
    reduce_gradients="#8f6fd0",
    optimizer_step="#571342",
    **{"between phases": "#e8e2f0"},
)
CLASS_COLORS = _Colors(
    matrix_product="#563c8b",
    attention="#8c95ea",
    embedding="#ddc5f9",
    loss="#c113b8",
    norm_clip=PHASE_COLORS["clip"],
    noise=PHASE_COLORS["noise"],
    optimizer=PHASE_COLORS["optimizer_step"],
    elementwise="#e378c4",
    reduction="#962870",
    communication="#6a2fd0",
    copy="#f6e0eb",
    other="#1c1922",
)
UNITEMISED_COLOR = "#a9c8d8"

# For those that declare none.
_FREE_SYMBOLS = [one for one in SYMBOLS if one not in {info.symbol for info in BUILT_IN}]


def trainer_color(name: str) -> str:
    """Return the colour of a trainer."""
    return trainer_info(name).color


def trainer_symbol(name: str) -> str:
    """Return a trainer's symbol in charts (`svg.SYMBOLS`), else a free one by its name."""
    return trainer_info(name).symbol or _FREE_SYMBOLS[crc32(name.encode()) % len(_FREE_SYMBOLS)]


def luminance(color: str) -> float:
    """Return the relative luminance of a colour (`#rrggbb`), from 0 to 1 (WCAG 2.2)."""
    channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def ink(color: str) -> str:
    """Return black or white, whichever reads better on a colour."""
    return "#000000" if luminance(color) > 0.179 else "#ffffff"


def words(name: str) -> str:
    """Return a category or class in words: `per_sample_gradients` -> `per-sample gradients`."""
    return name.replace("per_sample", "per-sample").replace("_", " ")
