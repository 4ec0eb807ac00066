"""What a plan is asked: a privacy budget, a data set, and the devices that there are."""

from dataclasses import dataclass
from itertools import count, takewhile

from dpprof.config.budget import BudgetConfig
from dpprof.config.fit import HEADROOM, usable_share
from dpprof.settings import refuse, setting
from dpprof.vocabulary.trainers import TRAINERS_HELP

_AUTO_BATCHES = (512, 1024, 2048, 4096)
_MOST_BATCHES = 24


@dataclass(frozen=True)
class PlanConfig(BudgetConfig):
    """The settings of the plan entry point that nothing else has."""

    target_epsilon: float = setting(8.0, "Epsilon that the training may spend.", above=0, below=1e4)
    logical_batches: str = setting(
        "auto",
        "Logical batches to weigh, over all devices: a list, or FIRST:LAST for each doubling between; auto "
        f"is {','.join(map(str, _AUTO_BATCHES))}, as far as the data set allows.",
    )
    trainers: str = setting("all", TRAINERS_HELP)
    num_devices: int = setting(1, "Devices that train together, each on its part of the batch.", minimum=1)
    headroom: str = setting(*HEADROOM)
    measured: str = setting(
        "",
        "Times come from these: a sweep or run, as `dpprof compare` takes them. Else from what runs_dir and "
        "MLflow have.",
    )
    efficiency: str = setting(
        "",
        "Shares of the target's rates that steps reach, as 0.3-0.6: turn least times into a range where "
        "nothing was measured. Else what earlier runs on that GPU reached.",
    )
    price_per_device_hour: float = setting(0.0, "Price of an hour of one device; 0: none.", minimum=0)

    def __post_init__(self) -> None:
        """Raises ConfigError."""
        super().__post_init__()
        usable_share(self.headroom)
        _ = self.batches, self.efficiencies

    @property
    def batches(self) -> tuple[int, ...]:
        """The logical batches. Raises ConfigError."""
        if self.logical_batches == "auto":
            small_enough = [size for size in _AUTO_BATCHES if not 0 < self.dataset_size < 2 * size]
            return tuple(small_enough) or (max(1, self.dataset_size // 2),)
        try:
            if ":" in self.logical_batches:
                first, last = map(int, self.logical_batches.split(":"))
                found = list(takewhile(lambda size: 0 < size <= last, (first << i for i in count())))
            else:
                found = [int(text) for text in self.logical_batches.split(",")]
        except ValueError:
            found = []
        if not found or min(found) < 1 or len(found) > _MOST_BATCHES:
            wanted = f"up to {_MOST_BATCHES} whole numbers above 0, separated by commas, or FIRST:LAST"
            raise refuse("logical_batches", self.logical_batches, wanted)
        return tuple(dict.fromkeys(found))

    @property
    def efficiencies(self) -> tuple[float, float] | None:
        """The lowest and the highest share, if given. Raises ConfigError."""
        if not self.efficiency:
            return None
        try:
            low, high = map(float, self.efficiency.split("-"))
        except ValueError:
            low, high = 0.0, 0.0
        if not 0 < low < high <= 1:
            raise refuse("efficiency", self.efficiency, "two shares above 0 and up to 1, as 0.3-0.6")
        return low, high

    @property
    def usable(self) -> float:
        """The share of the device's memory that a step may need."""
        return usable_share(self.headroom)

    def check_against(self, batch: int) -> None:
        """Raises ConfigError if the data set is not given, or too small for a logical batch."""
        self.check_given()
        self.check_batch("logical_batches", batch, batch)
