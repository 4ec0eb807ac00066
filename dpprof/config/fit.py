"""What the search for the largest size is asked."""

import re
from dataclasses import dataclass

from dpprof.settings import refuse, setting

# What a fit searches the largest of, and what it searches the fewest of.
WORLD_SIZE = "world_size"
FIT_ALONG = ("batch_size", "seq_len", WORLD_SIZE)
# Any more physical batches in a logical one hold the same memory as two.
ACCUMULATING = 2
# The default of the setting, and its help.
HEADROOM = (
    "10%",
    "Share of the device's memory to keep free, as 10% or 0%: for fragmentation, other processes, and "
    "what an estimate does not see.",
)


def usable_share(headroom: str) -> float:
    """The share of a device's memory that is not kept free. Raises ConfigError."""
    if not re.fullmatch(r"\d{1,2}(\.\d+)?%", headroom):
        raise refuse("headroom", headroom, "a percentage from 0% to below 100%, as 10%")
    return 1 - float(headroom.removesuffix("%")) / 100


@dataclass(frozen=True)
class FitConfig:
    """The settings of the fit entry point that nothing else has."""

    along: str = setting(
        "batch_size",
        "Which size to maximise, or with world_size to minimise; the others are fixed.",
        choices=FIT_ALONG,
    )
    logical_batch: int = setting(
        0,
        "Samples in the logical batch that training needs; shows how many physical steps it takes.",
        minimum=0,
    )
    headroom: str = setting(*HEADROOM)
    verify: bool = setting(False, "Measure the answer and the next larger size on this machine's device.")

    def __post_init__(self) -> None:
        """Raises ConfigError."""
        if self.logical_batch and self.along != "batch_size":
            raise refuse("logical_batch", self.logical_batch, f"0 with along={self.along}")
        usable_share(self.headroom)

    @property
    def usable(self) -> float:
        """The share of the device's memory that the answer may need."""
        return usable_share(self.headroom)
