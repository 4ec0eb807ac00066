"""Size of a whole training, from which its privacy guarantee or noise follows."""

import math
from dataclasses import dataclass

from dpprof.errors import refuse
from dpprof.vocabulary.settings import setting

# Guarantees above this epsilon, or with this delta or more, are refused by default.
_MOST_EPSILON, _TOO_LARGE_DELTA = 20.0, 0.1


def weaknesses(epsilon: float, delta: float, num_samples: int) -> list[str]:
    """Return sentences on what a weak guarantee allows; none for one that protects."""
    found = []
    if delta * num_samples > 1.001:  # 1 / N may be rounded
        found.append(
            f"delta {delta:g} is above 1 / {num_samples:,}: publishing {delta * num_samples:,.0f} of the "
            "samples in full, chosen at random, would satisfy this guarantee"
        )
    if epsilon > _MOST_EPSILON:
        found.append(
            f"epsilon {epsilon:.4g} lets a single sample make any outcome e^{epsilon:.4g}, about "
            f"1e{epsilon / math.log(10):.0f}, times as likely: such a guarantee alone protects hardly anybody"
        )
    return found


@dataclass(frozen=True)
class BudgetConfig:
    """The data set and the length of training (DP trainers)."""

    dataset_size: int = setting(
        0, "Samples in the data set, such as documents; 0: not known.", minimum=0, below=10**13
    )
    target_delta: float = setting(
        0.0, "Delta; 0 is the largest power of ten that is at most 1 / (10 dataset_size).", minimum=0, below=1
    )
    epochs: float = setting(1.0, "How often training takes each sample, on average.", above=0, below=1e6)
    steps: int = setting(0, "Logical steps; 0 takes them from epochs.", minimum=0)
    allow_weak_privacy: bool = setting(
        False, f"Accept an epsilon above {_MOST_EPSILON:g}, or a delta of {_TOO_LARGE_DELTA:g} or more."
    )

    def __post_init__(self) -> None:
        if self.steps and self.epochs != 1:
            raise refuse("steps", self.steps, "0 with epochs, which gives the steps")

    def check_used(self) -> None:
        """Raise ConfigError for a setting that has no effect without the size of the data set."""
        for name, default in vars(BudgetConfig()).items():
            if not self.dataset_size and (given := getattr(self, name)) != default:
                default = f"{default:g}" if name != "allow_weak_privacy" else "false"
                raise refuse(name, given, f"{default} unless dataset_size is given")

    def check_batch(self, name: str, given: object, batch: int) -> None:
        """Raise ConfigError, naming a setting, if the logical batch is larger than the data set."""
        if batch > self.dataset_size:
            product = "" if given == batch else f"; the logical batch of all ranks has {batch:,}"
            raise refuse(name, given, f"at most dataset_size, {self.dataset_size:,}{product}")

    def check_strength(self, epsilon: float = 0.0) -> None:
        """Raise ConfigError for a guarantee that protects hardly anybody, unless that is accepted."""
        delta = self.target_delta
        for name, given, is_weak, strong in (
            ("target_delta", delta, delta >= _TOO_LARGE_DELTA, f"below {_TOO_LARGE_DELTA:g}"),
            ("target_epsilon", epsilon, epsilon > _MOST_EPSILON, f"up to {_MOST_EPSILON:g}"),
        ):
            if is_weak and not self.allow_weak_privacy:
                why = "; ".join(["", *weaknesses(epsilon, delta, self.dataset_size)])
                raise refuse(name, given, f"a number {strong} unless allow_weak_privacy is true{why}")

    def num_steps(self, batch: int) -> int:
        """Return the number of logical steps with `batch` samples on average."""
        return self.steps or max(1, round(self.epochs * self.dataset_size / batch))
