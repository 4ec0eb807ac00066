"""Settings of an experiment that runs on fake tensors: the device to compare with."""

from dataclasses import dataclass

from dpprof.config.devices import DEVICES
from dpprof.vocabulary.settings import setting

# The only pass of an estimate.
ESTIMATE = "estimate"


@dataclass(frozen=True)
class EstimatingConfig:
    """The device that an estimate is compared with, and the scope of the estimate."""

    target: str = setting(
        "none", "GPU to compare the estimate with: its memory and its rates.", choices=("none", *DEVICES)
    )
    device_memory_gib: float = setting(
        0.0, "Memory of the device to compare with; 0 means the target's.", minimum=0, below=1e6
    )
    poisson_tail: float = setting(
        1e-6,
        "With Poisson sampling: the share of steps that may have a larger batch than the estimated one.",
        above=0,
        below=1,
    )
    link_gb_per_s: float = setting(
        0.0,
        "With several ranks: what a device sends to the others, GB/s in one direction; 0 is what the "
        "target's data sheet says.",
        minimum=0,
        below=1e6,
    )
    savings: bool = setting(
        True, "Also estimate what each change of the lean loop saves; false is about twice as fast."
    )
