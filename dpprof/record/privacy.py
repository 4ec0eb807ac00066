"""The privacy guarantee of a whole training, in the record of a run that measured a few of its steps."""

from dataclasses import dataclass, field


@dataclass
class PrivacyResult:
    """What an accountant was asked of a training, and what it answered: `epsilon`, at `delta`.

    `epsilon` is None where no answer would be true: `why_none` then says why. `accountant` gave the answer.
    `weakened` are sentences on what the measured steps lack for the guarantee to be theirs, and on how loose
    the answer is.
    """

    noise_multiplier: float
    sample_rate: float
    steps: int
    delta: float
    epsilon: float | None = None
    accountant: str = ""
    why_none: str = ""
    weakened: list[str] = field(default_factory=list)

    @property
    def notes(self) -> list[str]:
        """Why there is no epsilon, or what weakens the one that there is, a sentence each."""
        return [f"there is no epsilon: {self.why_none}"] if self.epsilon is None else self.weakened
