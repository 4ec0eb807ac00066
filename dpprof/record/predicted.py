"""What a plan said of an experiment before it was measured."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Predicted:
    """The peak that the allocator should have, by an estimate in the folder `estimate`, and the time of a
    step on the device `target` (empty: on this machine's processor): between `step_s_least` and
    `step_s_most`, None where it is not known. `time_basis` says what they rest on.
    """

    plan: str
    peak_bytes: int | None = None
    estimate: str = ""
    step_s_least: float | None = None
    step_s_most: float | None = None
    time_basis: str = ""
    target: str = ""
