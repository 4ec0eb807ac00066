"""Settings of an experiment that runs on fake tensors: the device to compare with."""

from dataclasses import dataclass
from pathlib import Path

from dpprof.config.device_times import DeviceTimes
from dpprof.config.devices import DEVICES
from dpprof.errors import refuse
from dpprof.vocabulary.settings import setting

# The only pass of an estimate.
ESTIMATE = "estimate"


TARGET_HELP = (
    f"Device to estimate for: none, a GPU ({', '.join(DEVICES)}), whose memory and times count, or a file of "
    "dpprof calibrate with the times of a device."
)


@dataclass(frozen=True)
class EstimatingConfig:
    """The device that an estimate is compared with, and the scope of the estimate."""

    target: str = setting("none", TARGET_HELP)
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

    @property
    def times(self) -> DeviceTimes | None:
        """The target's table if it is a file that is still there."""
        is_file = self.target not in ("none", *DEVICES) and Path(self.target).is_file()
        return DeviceTimes.read(Path(self.target)) if is_file else None

    def check_target(self, device: str, world_size: int) -> None:
        """Raise ConfigError if the target is neither none, nor a GPU, nor a file of times of this device."""
        times = self.times
        is_known = times is not None or self.target in ("none", *DEVICES)
        if not is_known or (self.target != "none" and (times.device if times else "cuda") != device):
            raise refuse("target", self.target, f"none, {', '.join(DEVICES)}, a file of dpprof calibrate")
        if times is not None and device == "cpu" and times.ranks != world_size:
            raise refuse("target", self.target, f"a file of dpprof calibrate --world-size {world_size}")
