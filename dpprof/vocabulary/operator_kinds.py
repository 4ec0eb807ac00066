"""Kinds of operators whose times behave alike, as tables of times list them, and what stands in for what."""

import re
from functools import cache

# Endings of a convolution's backward that makes one gradient alone, by whether it makes each.
ENDS = {(True, False): "_of_inputs", (False, True): "_of_weights"}
PRODUCT, CONVOLUTION, ATTENTION = "product", "convolution", "attention"
BOTH_GRADIENTS = f"{CONVOLUTION}_backward"
ELEMENTWISE, IN_PLACE, TRANSPOSE = "elementwise", "in_place", "transpose"
# The first pattern that matches an operator's bare name, or that without underscores, decides.
_KINDS = [
    (kind, re.compile(pattern))
    for kind, pattern in (
        (PRODUCT, r"mm|addmm|bmm|baddbmm"),
        *((CONVOLUTION + end, rf"\w*convolution\w*backward\w*{end}") for end in ENDS.values()),
        (BOTH_GRADIENTS, r"\w*convolution\w*backward\w*"),
        (CONVOLUTION, r"\w*convolution\w*"),
        (f"{ATTENTION}_backward", r"scaled_dot_product\w*backward"),
        (ATTENTION, r"scaled_dot_product\w*"),
        ("log_softmax_backward", r"log_softmax_backward_data"),
        ("log_softmax", r"log_softmax"),
        ("softmax_backward", r"softmax_backward_data"),
        ("softmax", r"(safe_)?softmax"),
        ("layer_norm_backward", r"(native_layer_norm|fused_rms_norm)_backward"),
        ("layer_norm", r"native_layer_norm|fused_rms_norm"),
        ("group_norm_backward", r"native_(group|batch)_norm_backward"),
        ("group_norm", r"native_(group|batch)_norm\w*"),
        ("embedding_backward", r"embedding_dense_backward|index_put|index_add|scatter\w*"),
        ("embedding", r"embedding|index|index_select|gather|take\w*"),
        ("unfold", r"im2col|col2im|unfold\w*"),
        ("sort", r"sort|argsort|topk|unique\w*|cumsum"),
        ("random", r"normal|randn\w*|uniform|exponential|rand|randint|random"),
        ("dropout", r"bernoulli|native_dropout(_backward)?"),
        ("transcendental", r"(gelu|silu|tanh|sigmoid|exp|erf|log|pow|log1p|sin|cos)(_backward)?"),
        ("reduction", r"sum|mean|linalg_vector_norm|norm|amax|amin|max|min|argmax|any|all"),
        ("foreach", r"foreach_\w+|fused_\w+"),
        ("zeros", r"(new_)?(zeros|ones|full)\w*"),
        ("copy", r"copy|clone|to_copy|cat|stack|contiguous"),
    )
]
# Kinds of which a host issues an operator in little time: no library chooses a kernel.
LIGHT = frozenset((ELEMENTWISE, IN_PLACE, TRANSPOSE, "transcendental", "zeros", "copy", "foreach"))
# Kinds without times of their own are taken to run as these do: an assumption.
STAND_IN = {
    CONVOLUTION: PRODUCT,
    BOTH_GRADIENTS: CONVOLUTION,
    **{CONVOLUTION + end: BOTH_GRADIENTS for end in ENDS.values()},
    ATTENTION: PRODUCT,
    f"{ATTENTION}_backward": ATTENTION,
    "log_softmax_backward": "softmax_backward",
    "log_softmax": "softmax",
    "softmax_backward": "softmax",
    "layer_norm_backward": "layer_norm",
    "group_norm_backward": "group_norm",
    "group_norm": "layer_norm",
    "embedding_backward": "embedding",
    **dict.fromkeys(
        ("softmax", "layer_norm", "embedding", "sort", "random", "dropout", "transcendental", "reduction"),
        ELEMENTWISE,
    ),
    **dict.fromkeys(("copy", "zeros", "foreach", "unfold", TRANSPOSE, IN_PLACE), ELEMENTWISE),
}
# Kinds by rows and columns; matrices have sizes of their own, and of all others only the bytes matter.
BY_ROWS = tuple(kind for kind, _ in _KINDS if "softmax" in kind or "_norm" in kind)
KINDS = frozenset((*(kind for kind, _ in _KINDS), ELEMENTWISE, IN_PLACE, TRANSPOSE))


def num_sizes(kind: str) -> int:
    """Return how many sizes a kind is looked up by."""
    if kind == PRODUCT or kind.startswith(CONVOLUTION):
        return 4
    if kind.startswith(ATTENTION):
        return 3
    return 2 if kind in BY_ROWS else 1


@cache
def kind_of(name: str, is_dense: bool = True) -> str:
    """Return the kind of an operator, e.g. `aten::addmm` -> `product`; a copy in another order transposes."""
    bare = name.rpartition("::")[2]
    kind = next((kind for kind, pattern in _KINDS if pattern.fullmatch(bare.strip("_"))), ELEMENTWISE)
    if kind == "copy" and not is_dense:
        return TRANSPOSE
    return IN_PLACE if kind in ("copy", ELEMENTWISE) and bare.endswith("_") else kind
