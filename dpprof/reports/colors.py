"""Colours of trainers, categories, operator classes and phases: one meaning, one colour, on every page.

From Okabe and Ito's palette, which colour-blind readers tell apart; greys for what any training needs. What
no table lists, such as a phase that only another package's trainer has, gets a grey and keeps its name.
"""

from dpprof.vocabulary.trainers import UNLISTED_COLOR, trainer_info

CATEGORY_COLORS = {
    "parameters": "#8c8c8c",
    "buffers": "#bdbdbd",
    "optimizer_state": "#5e5e5e",
    "inputs": "#d9d9d9",
    "outputs": "#a6761d",
    "activations": "#56b4e9",
    "gradients": "#009e73",
    "summed_gradients": "#8fd4bf",
    "per_sample_gradients": "#d55e00",
    "gradient_norms": "#b8a800",
    "gram_matrices": "#cc79a7",
    "clip_factors": "#f0e442",
    "noise": "#e69f00",
    "temporary": "#0072b2",
    "other": "#222222",
    "untracked": "#ffffff",
}
CLASS_COLORS = {
    "matrix_product": "#0072b2",
    "attention": "#56b4e9",
    "embedding": "#f0e442",
    "loss": "#009e73",
    "norm_clip": "#d55e00",
    "noise": "#e69f00",
    "optimizer": "#5e5e5e",
    "elementwise": "#cc79a7",
    "reduction": "#8fd4bf",
    "copy": "#8c8c8c",
    "other": "#222222",
}
PHASE_COLORS = {
    "zero_grad": "#bdbdbd",
    "forward": "#56b4e9",
    "backward": "#0072b2",
    "backward_norms": "#cc79a7",
    "clip": "#d55e00",
    "backward_weighted": "#009e73",
    "noise": "#e69f00",
    "optimizer_step": "#5e5e5e",
    "between phases": "#e8e8e8",
}


def trainer_color(name: str) -> str:
    """The colour of a trainer, as the table of trainers has it."""
    return trainer_info(name).color


def category_color(name: str) -> str:
    """The colour of a category of memory."""
    return CATEGORY_COLORS.get(name, UNLISTED_COLOR)


def class_color(name: str) -> str:
    """The colour of an operator class."""
    return CLASS_COLORS.get(name, UNLISTED_COLOR)


def phase_color(name: str) -> str:
    """The colour of a phase of a step."""
    return PHASE_COLORS.get(name, UNLISTED_COLOR)


def ink(color: str) -> str:
    """Black or white, whichever reads better on a colour (`#rrggbb`): by relative luminance (WCAG 2.2)."""
    channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    luminance = sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
    return "#000000" if luminance > 0.179 else "#ffffff"


def words(name: str) -> str:
    """A category or class as a reader says it: `per_sample_gradients` -> `per-sample gradients`."""
    return name.replace("per_sample", "per-sample").replace("_", " ")
