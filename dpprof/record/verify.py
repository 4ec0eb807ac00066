"""What `verify` found of a trainer, as plain data."""

from dataclasses import dataclass, field


@dataclass
class VerifyCheck:
    """One check, by its name in `vocabulary.verify_checks`.

    `outcome` is `pass`, `fail` or `warning`; `said` tells in a sentence what was found. Where the check came
    to a number, it is `measured`, and passes up to `allowed`. `chance` is that of a result as far off as the
    noise that was seen, if the trainer is right, over all tests of all checks; too small a one fails.
    """

    name: str
    outcome: str
    said: str
    measured: float | None = None
    allowed: float | None = None
    chance: float | None = None


@dataclass
class VerifyResult:
    """All checks of one trainer.

    `max_grad_norm` is what samples were clipped to; `noise_deviation` the noise's standard deviation over the
    one asked for. `dropout_off` tells that the model has dropout, which was switched off; `doubt` why nothing
    could be checked.
    """

    checks: list[VerifyCheck] = field(default_factory=list)
    max_grad_norm: float | None = None
    noise_deviation: float | None = None
    num_noise_tests: int = 0
    dropout_off: bool = False
    doubt: str | None = None
