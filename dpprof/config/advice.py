"""What advice is asked for."""

from dataclasses import dataclass

from dpprof.config.fit import HEADROOM, usable_share
from dpprof.settings import OptionValue, setting
from dpprof.vocabulary.trainers import TRAINERS_HELP

# A trainer that private training begins with.
ADVICE_DEFAULTS: dict[str, OptionValue] = {"trainer": "DPSGDTrainer"}


@dataclass(frozen=True)
class AdviceConfig:
    """The settings of the advise entry point that an experiment does not have."""

    trainers: str = setting("all", TRAINERS_HELP)
    headroom: str = setting(*HEADROOM)

    def __post_init__(self) -> None:
        """Raises ConfigError."""
        usable_share(self.headroom)

    @property
    def usable(self) -> float:
        """The share of the device's memory that a step may need."""
        return usable_share(self.headroom)
