"""What a whole training is: from it and the noise its privacy guarantee follows."""

from dataclasses import dataclass

from dpprof.errors import ConfigError
from dpprof.settings import refuse, setting


@dataclass(frozen=True)
class BudgetConfig:
    """The data set, and how long is trained on it (DP trainers)."""

    dataset_size: int = setting(
        0, "Samples in the data set, such as documents; 0: not known.", minimum=0, below=10**13
    )
    target_delta: float = setting(
        0.0, "Delta; 0 is the largest power of ten that is at most 1 / (10 dataset_size).", minimum=0, below=1
    )
    epochs: float = setting(1.0, "How often training takes each sample, on average.", above=0, below=1e6)
    steps: int = setting(0, "Logical steps; 0 takes them from epochs.", minimum=0)

    def __post_init__(self) -> None:
        """Raises ConfigError."""
        if self.steps and self.epochs != 1:
            raise refuse("steps", self.steps, "0 with epochs, which gives the steps")

    def check_used(self) -> None:
        """Raises ConfigError for a setting that says nothing without the size of the data set."""
        for name, default in vars(BudgetConfig()).items():
            if not self.dataset_size and (given := getattr(self, name)) != default:
                raise refuse(name, given, f"{default:g} unless dataset_size is given")

    def check_given(self) -> None:
        """Raises ConfigError if the data set is not given."""
        if not self.dataset_size:
            raise ConfigError("dataset_size: it is missing, allowed: the number of samples to train on")

    def check_batch(self, name: str, given: object, batch: int) -> None:
        """Raises ConfigError, which names a setting, if the data set is too small for its logical batch."""
        if 2 * batch > self.dataset_size:
            product = "" if given == batch else f"; the logical batch of all ranks has {batch:,}"
            raise refuse(name, given, f"at most half of dataset_size, {self.dataset_size:,}{product}")

    def num_steps(self, batch: int) -> int:
        """Logical steps of so many samples each, on average."""
        return self.steps or max(1, round(self.epochs * self.dataset_size / batch))
