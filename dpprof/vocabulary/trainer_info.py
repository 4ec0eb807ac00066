"""Description of a trainer, known without importing it."""

import re
from dataclasses import dataclass
from typing import NamedTuple

from dpprof.vocabulary.parallel import NONE
from dpprof.vocabulary.settings import OptionValue
from dpprof.vocabulary.theory import Theory

# Memory of any trainer, and of one that keeps all per-sample gradients.
OF_ANY_TRAINING = (
    "parameters",
    "buffers",
    "optimizer_state",
    "inputs",
    "outputs",
    "activations",
    "gradients",
)
OF_FLAT_CLIPPING = (*OF_ANY_TRAINING, "summed_gradients", "per_sample_gradients", "clip_factors", "noise")
ONE_BACKWARD = ("zero_grad", "forward", "backward", "clip", "noise", "optimizer_step")
# Phases of each physical batch; others come once per step.
EACH_BATCH = ("forward", "backward", "backward_norms", "backward_weighted", "clip")
# Opacus's loop calls `zero_grad` for each, too.
OPACUS_EACH_BATCH = ("zero_grad", *EACH_BATCH)
# Phases in which gradients and weights are sent while the GPU computes.
OVERLAPPING = ("forward", "backward", "backward_norms", "backward_weighted")
UNLISTED_COLOR = "#b3b3b3"
OPACUS = "opacus"
# A trainer's mark in charts (`svg.SYMBOLS`).
SYMBOLS = (
    "circle",
    "square",
    "diamond",
    "triangle",
    "down",
    "star",
    "x",
    "left",
    "right",
    "hourglass",
    "bow",
    "cross",
)
NOT_DECLARED = "it does not declare that accountants know its steps (TrainerInfo.unaccounted)"


class Limit(NamedTuple):
    """The only value of a setting that a trainer supports, and the reason with the remedy."""

    setting: str
    only: object
    why: str


class Alternative(NamedTuple):
    """A value of a trainer's own setting that may need less memory or time, and its name in a table."""

    setting: str
    value: OptionValue
    name: str


@dataclass(frozen=True)
class TrainerInfo:
    """Description of a trainer, known without importing it.

    `short_name` may be given in place of `name`. `is_private` means differential privacy. `color` is
    `#rrggbb`. `phases` are the step's in order, `categories` those of memory that it holds or makes (from
    `vocabulary/phases.py` and `categories.py`, or its own). `each_batch` are the phases of each physical
    batch; others come once per step. `target` is its class, `module:ClassName`; `options`, if any, a frozen
    dataclass of settings (`settings`). `theory` gives the FLOPs of a layer's call, if a formula is known
    (`vocabulary.theory`). `is_default` puts it among `all` trainers; others must be named. `limits` are
    settings that its library does not support. `other_algorithm` says how its algorithm differs from DP-SGD
    with flat clipping. `parallel` are the supported ways to share training between ranks
    (`vocabulary/parallel.py`). `unaccounted` says why accountants do not apply. It is empty only if each step
    adds Gaussian noise of `noise_multiplier` * `max_grad_norm` to a sum that one sample changes by at most
    `max_grad_norm`, and publishes nothing else of the samples. `times_standard` is its step time over
    standard training's, where measured (`docs/results/trainers_cpu.md`, `small`). `is_reentrant` says that
    activation checkpointing must be reentrant, so that its library's hooks do not run in the first forward.
    `symbol` is its mark in charts, one of `SYMBOLS`; empty, it gets one that no trainer of dpprof's has.
    `library` is the package whose optimizer it trains with, if that is not torch's (`OPACUS`). `overlapping`
    are the phases in which ranks send while they compute. `alternatives` are values of its own settings that
    `dpprof advise` tries. `script` is the template of its training script (`pages/templates`), if it has one.
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
    is_default: bool = True
    limits: tuple[Limit, ...] = ()
    other_algorithm: str = ""
    parallel: tuple[str, ...] = (NONE,)
    unaccounted: str = NOT_DECLARED
    each_batch: tuple[str, ...] = EACH_BATCH
    times_standard: float | None = None
    is_reentrant: bool = False
    symbol: str = ""
    library: str = ""
    overlapping: tuple[str, ...] = OVERLAPPING
    alternatives: tuple[Alternative, ...] = ()
    script: str = ""

    def __post_init__(self) -> None:
        """Raise ValueError for a colour or a symbol that pages cannot use."""
        if not re.fullmatch(r"#[0-9a-fA-F]{6}", self.color):
            raise ValueError(f"color must be #rrggbb, and is {self.color}")
        if self.symbol and self.symbol not in SYMBOLS:
            raise ValueError(f"symbol must be one of {', '.join(SYMBOLS)}, and is {self.symbol}")
