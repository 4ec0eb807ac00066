"""What is known of a trainer without importing it."""

import re
from dataclasses import dataclass
from typing import NamedTuple

from dpprof.vocabulary.parallel import NONE
from dpprof.vocabulary.theory import Theory

# The memory of any trainer, and of one that keeps every per-sample gradient.
OF_ANY_TRAINING = (
    "parameters",
    "buffers",
    "optimizer_state",
    "inputs",
    "outputs",
    "activations",
    "gradients",
)
OF_FLAT_CLIPPING = (
    *OF_ANY_TRAINING,
    "summed_gradients",
    "per_sample_gradients",
    "clip_factors",
    "noise",
)
# The phases of one that needs one backward.
ONE_BACKWARD = ("zero_grad", "forward", "backward", "clip", "noise", "optimizer_step")
# The phases that come once for each physical batch; others come once in a step.
EACH_BATCH = ("forward", "backward", "backward_norms", "backward_weighted", "clip")
# Opacus's loop has `zero_grad` for each, too.
OPACUS_EACH_BATCH = ("zero_grad", *EACH_BATCH)
# Of a trainer that does not say whether accountants know its steps.
NOT_DECLARED = "it does not declare that accountants know its steps (TrainerInfo.unaccounted)"


class Limit(NamedTuple):
    """A setting of which a trainer takes one value only, and why, with the remedy."""

    setting: str
    only: object
    why: str


@dataclass(frozen=True)
class TrainerInfo:
    """What is known of a trainer without importing it.

    `short_name` may be given in place of `name`, and stands for it where room is short; so may the
    `former_names`, which nothing lists. `is_private` says whether it trains with differential
    privacy. `color` is `#rrggbb`. `phases` are those of its step in order, `categories` those of the memory
    that it holds or makes (listed in `vocabulary/phases.py` and `categories.py`, or its own). `each_batch`
    are the phases that come once for each physical batch; the others come once in a step. `target` is
    its class, `module:ClassName`. `options`, if it has any, is a frozen dataclass of settings
    (`settings`). `theory` gives the FLOPs that it needs for a layer's call, if a formula is known
    (`vocabulary.theory`). `is_default` says whether it is one of `all` trainers; the others have to be named.
    `limits` are settings that its library cannot train with. `other_algorithm` says what it does that makes
    it another algorithm than DP-SGD with flat clipping, if it is one. `parallel` are the ways in which it
    can share the training between ranks (`vocabulary/parallel.py`). `unaccounted` says why accountants do not
    know what it spends; it is empty where every step adds to a sum that one sample moves by `max_grad_norm`
    at most Gaussian noise of `noise_multiplier` times that, and publishes nothing else of the samples.
    """

    name: str
    short_name: str
    is_private: bool
    color: str
    phases: tuple[str, ...]
    categories: tuple[str, ...]
    target: str
    options: type | None = None
    theory: Theory | None = None
    former_names: tuple[str, ...] = ()
    is_default: bool = True
    limits: tuple[Limit, ...] = ()
    other_algorithm: str = ""
    parallel: tuple[str, ...] = (NONE,)
    unaccounted: str = NOT_DECLARED
    each_batch: tuple[str, ...] = EACH_BATCH

    def __post_init__(self) -> None:
        """Raises ValueError for a colour that pages cannot use."""
        if not re.fullmatch(r"#[0-9a-fA-F]{6}", self.color):
            raise ValueError(f"color must be #rrggbb, and is {self.color}")
