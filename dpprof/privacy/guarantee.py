"""What an accountant is asked, and what it answers."""

from dataclasses import dataclass

from dpprof.settings import refuse

PRV, RDP = "prv", "rdp"
ACCOUNTANTS = (PRV, RDP)


@dataclass(frozen=True)
class Guarantee:
    """That steps with this noise are (epsilon, delta)-private, by an accountant's account.

    The noise multiplier is the standard deviation of the noise over the clipping norm. `note` tells in a
    sentence that another accountant was asked for, or that the answer is coarse; else it is empty.
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
    """Steps of DP-SGD (Abadi et al. 2016) that all sample alike, and the delta at which they are accounted.

    Each step takes each document with probability `sample_rate`, independently of all others (Poisson
    sampling). Neighbouring data sets differ in one document, added or removed. Batches of a fixed size, or
    from a shuffled data set, have another epsilon, which may be larger.

    Raises ConfigError if a number is out of range.
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

    def guarantee(
        self, accountant: str, noise_multiplier: float, epsilon: float, note: str = ""
    ) -> Guarantee:
        """An accountant's answer about these steps."""
        return Guarantee(
            accountant, noise_multiplier, epsilon, self.delta, self.sample_rate, self.steps, note
        )


def default_delta(num_documents: int) -> float:
    """The largest power of ten that is at most 1 / (10 N): 1e-6 for 50,000 documents, 1e-8 for 10 million.

    A delta of 1 / N would still allow publishing one document in full, chosen at random.
    """
    if num_documents < 1:
        raise refuse("num_documents", num_documents, "a whole number of at least 1")
    return float(f"1e-{len(str(10 * num_documents - 1))}")
