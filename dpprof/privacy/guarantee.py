"""Inputs and answers of privacy accountants."""

from dataclasses import dataclass

from dpprof.errors import refuse

PRV, RDP = ACCOUNTANTS = ("prv", "rdp")


@dataclass(frozen=True)
class Guarantee:
    """(epsilon, delta) of steps with this noise, by an accountant.

    The noise multiplier is the noise's standard deviation over the clipping norm. `note` says in a sentence
    that another accountant was requested or that the answer is coarse; else it is empty.
    """

    accountant: str
    noise_multiplier: float
    epsilon: float
    delta: float
    sample_rate: float
    steps: int
    note: str = ""


@dataclass(frozen=True)
class PrivateSteps:
    """Steps of DP-SGD (Abadi et al. 2016) with equal sampling, and the delta for accounting.

    Each step includes each document with probability `sample_rate`, independently (Poisson sampling).
    Neighbouring data sets differ by one document, added or removed. Batches of fixed size or from shuffled
    data have another epsilon, which may be larger. Raises ConfigError if a number is out of range.
    """

    sample_rate: float
    steps: int
    delta: float

    def __post_init__(self) -> None:
        if not 0 < self.sample_rate <= 1:
            raise refuse("sample_rate", self.sample_rate, "a number above 0 and at most 1")
        if self.steps < 1:
            raise refuse("steps", self.steps, "a whole number of at least 1")
        if not 0 < self.delta < 1:
            raise refuse("delta", self.delta, "a number above 0 and below 1")

    def are_of(self, guarantee: Guarantee) -> bool:
        """Tell whether a guarantee is one of these steps."""
        of = guarantee.sample_rate, guarantee.steps, guarantee.delta
        return of == (self.sample_rate, self.steps, self.delta)

    def guarantee(
        self, accountant: str, noise_multiplier: float, epsilon: float, note: str = ""
    ) -> Guarantee:
        """Return an accountant's answer for these steps."""
        return Guarantee(
            accountant, noise_multiplier, epsilon, self.delta, self.sample_rate, self.steps, note
        )


def default_delta(num_documents: int) -> float:
    """Return the largest power of ten up to 1 / (10 N), as 1 / N allows publishing a random document."""
    if num_documents < 1:
        raise refuse("num_documents", num_documents, "a whole number of at least 1")
    return float(f"1e-{len(str(10 * num_documents - 1))}")
