"""Settings of an experiment that runs on fake tensors: the device to compare with."""

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from dpprof.config.device_times import DeviceTimes
from dpprof.config.devices import DEVICES, name_of
from dpprof.errors import ConfigError, DpprofError, refuse
from dpprof.vocabulary.settings import setting

# The only pass of an estimate.
ESTIMATE = "estimate"
# What an estimate found in a file of times. It is kept, as the file may be elsewhere or another one later.
FOUND_IN_TIMES = ("times_gpu", "times_sha256")


TARGET_HELP = (
    f"Device to estimate for: none, a GPU ({', '.join(DEVICES)}), whose memory and times count, or a file of "
    "dpprof calibrate with the times of a device."
)


@dataclass(frozen=True)
class EstimatingConfig:
    """The device that an estimate is compared with, and the scope of the estimate.

    With a file of times as the target, `resolve` notes which listed GPU they are of (`none` if it is none),
    and the file's SHA-256.
    """

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

    times_gpu: str = ""
    times_sha256: str = ""

    @property
    def gpu(self) -> str:
        """Name in `DEVICES` of the GPU that is estimated for; another text if it is not listed."""
        return self.times_gpu or self.target

    def read_times(self) -> DeviceTimes | None:
        """Read the target's table if it is a file that is there: before an estimate, not when one is read.

        Raises ConfigError if the file is no table.
        """
        is_file = self.target not in ("none", *DEVICES) and Path(self.target).is_file()
        try:
            return DeviceTimes.read(Path(self.target)) if is_file else None
        except DpprofError as error:
            raise ConfigError(f"target: {error}") from error

    def resolve(self, times: DeviceTimes | None, device: str, world_size: int) -> Self:
        """Return the settings with what a file of times says of itself.

        Raises ConfigError if the target is neither none, nor a GPU, nor a file of times of this device.
        """
        self._check_target(times, device, world_size)
        if times is None:
            return self
        digest = hashlib.sha256(Path(self.target).read_bytes()).hexdigest()
        return replace(self, times_gpu=name_of(times.gpu), times_sha256=digest)

    def _check_target(self, times: DeviceTimes | None, device: str, world_size: int) -> None:
        is_known = times is not None or self.target in ("none", *DEVICES)
        if not is_known or (self.target != "none" and (times.device if times else "cuda") != device):
            raise refuse("target", self.target, f"none, {', '.join(DEVICES)}, a file of dpprof calibrate")
        if times is not None and device == "cpu" and times.ranks != world_size:
            raise refuse("target", self.target, f"a file of dpprof calibrate --world-size {world_size}")
