"""Colours of categories, operator classes and phases: one meaning, one colour, on every page.

From Okabe and Ito's palette, which colour-blind readers tell apart; greys for what any training needs.
"""

CATEGORY_COLORS = {
    "parameters": "#8c8c8c",
    "buffers": "#bdbdbd",
    "optimizer_state": "#5e5e5e",
    "inputs": "#d9d9d9",
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


def words(name: str) -> str:
    """A category or class as a reader says it: `per_sample_gradients` -> `per-sample gradients`."""
    return name.replace("per_sample", "per-sample").replace("_", " ")
