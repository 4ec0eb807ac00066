"""What one experiment measured, as plain data. Bytes and seconds; a figure not measured is None.

`record.json` is this class. `figures` makes figures of it, with names and units.
"""

import dataclasses
import json
import time
from dataclasses import dataclass, field
from typing import Any

from dpprof.config.estimating import ESTIMATE
from dpprof.errors import DpprofError
from dpprof.json_files import parse, typed
from dpprof.record.counters import CounterResult
from dpprof.record.ledger import LedgerResult
from dpprof.record.privacy import PrivacyResult
from dpprof.record.verify import VerifyResult

SCHEMA_VERSION = 2


@dataclass
class PassOutcome:
    """How one pass ended: status is `running`, `finished`, `failed`, or `skipped` where it cannot run."""

    status: str
    reason: str | None = None
    seconds: float | None = None


@dataclass
class Memory:
    """Memory figures in bytes.

    On CUDA they come from the allocator's statistics during the clean pass; on the CPU, where torch keeps
    none, from the allocator's events during the memory pass. `step_peak` and the peaks leave warm-up out;
    `first_step_peak` is the very first step's, which also allocates optimizer state. `phase_peak` is the
    highest peak in each phase, from the memory pass on every device. `saved` is how much lower the peak is
    with each saving that the loop leaves unmade, and with all of them (`loops.savings_to_measure`).
    """

    peak_allocated: int | None = None
    peak_reserved: int | None = None
    first_step_peak: int | None = None
    phase_peak: dict[str, int] = field(default_factory=dict)
    saved: dict[str, int] = field(default_factory=dict)
    step_peak: list[int] = field(default_factory=list)
    after_step: int | None = None
    after_cleanup: int | None = None
    device_used: int | None = None
    peak_rss: int | None = None


@dataclass
class OperatorRow:
    """One operator in one phase, totalled over the traced steps.

    `self_s` is time in the operator itself, on the host; `device_self_s` the time of the kernels that it
    launched (CUDA only). `allocated` counts bytes allocated while it was the innermost operator.
    """

    name: str
    operator_class: str
    phase: str | None
    calls: int
    self_s: float
    device_self_s: float | None
    allocated: int


@dataclass
class Pace:
    """Seconds of each step and of the fixed computation right after it (the pace pass)."""

    step_s: list[float]
    fixed_s: list[float]

    def __post_init__(self) -> None:
        """Raises ValueError unless each step has its fixed computation."""
        if len(self.step_s) != len(self.fixed_s):
            raise ValueError(f"{len(self.step_s)} steps, but {len(self.fixed_s)} fixed computations")

    @property
    def ratios(self) -> list[float]:
        """How many times the fixed computation each step takes."""
        return [step / fixed for step, fixed in zip(self.step_s, self.fixed_s, strict=True)]


@dataclass
class Ceilings:
    """What this machine reaches at best, measured (the ceilings pass): bytes per second that a large copy
    reads and writes, and FLOP per second of a large matrix product in a precision."""

    copy_bytes_per_s: float
    matmul_flop_per_s: float
    precision: str


@dataclass
class GradientCheck:
    """A trainer's clipped gradient, with noise off, against a naive loop over samples in float64.

    Relative errors are L2, ||g - reference|| / ||reference||, of the trainer in float64, in float32 and under
    bf16 autocast where the experiment trains so. `computed_in` is the least precise type that the model
    computes in when its weights are float64; `dropout_off` tells that it has dropout, which was switched off.
    `fault` says what is wrong beside the errors, `doubt` why the check cannot judge.
    """

    relative_error_float64: float | None = None
    relative_error_float32: float | None = None
    relative_error_bf16: float | None = None
    computed_in: str = "float64"
    dropout_off: bool = False
    fault: str | None = None
    doubt: str | None = None


@dataclass
class ParameterGroup:
    """Parameters of one kind (`Linear.weight`, `lora_A.weight`) with the same fate: how many `tensors`, and
    `numbers` in them; whether they train, whether the trainer takes their per-sample gradients, and whether
    the clean pass's steps moved them (None where no step was taken with data).
    """

    kind: str
    tensors: int
    numbers: int
    trains: bool
    per_sample: bool
    moved: bool | None = None


@dataclass
class RankResult:
    """What one rank measured: the most bytes that it held and in which phase, seconds of its timed steps and
    of each phase in them, of the same steps alone (the alone pass), and where it ran. An estimate has the
    peak alone.
    """

    rank: int
    peak: int | None = None
    phase: str | None = None
    step_s: list[float] = field(default_factory=list)
    phase_s: dict[str, list[float]] = field(default_factory=dict)
    alone_step_s: list[float] = field(default_factory=list)
    nonfinite_losses: int | None = None
    host: str = ""


@dataclass
class Record:
    """Everything one experiment measured.

    `started_at` and `ended_at` (so far) are seconds since the epoch. `step_samples` are the samples of each
    timed step where they vary; `samples_per_step` and `tokens_per_step` are then expected values. `timed_s`
    is how long the timed steps took from the first to the last, with what lies between them. Over that time
    `involuntary_switches` counts how often another process took the processor, and `others_processor_s` is
    what others had of the processors open to this process: much of either says that the times are too long.
    `nonfinite_losses` counts the losses of the timed steps that are NaN or infinite. `warnings` say what to
    know of the workload before trusting its figures; `changed` says what was changed in its model for
    training. With several ranks `step_s` and `phase_s` are the slowest rank's, `alone_step_s` and all else
    rank 0's; `ranks` has each of them, or those that were estimated.
    """

    config: dict[str, Any]
    environment: dict[str, str]
    schema_version: int = SCHEMA_VERSION
    started_at: float = field(default_factory=time.time)
    ended_at: float | None = None
    passes: dict[str, PassOutcome] = field(default_factory=dict)
    num_parameters: int | None = None
    parameters: list[ParameterGroup] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    samples_per_step: int | None = None
    tokens_per_step: int | None = None
    startup_s: float | None = None
    step_s: list[float] = field(default_factory=list)
    phase_s: dict[str, list[float]] = field(default_factory=dict)
    alone_step_s: list[float] = field(default_factory=list)
    step_samples: list[int] = field(default_factory=list)
    timed_s: float | None = None
    involuntary_switches: int | None = None
    others_processor_s: float | None = None
    nonfinite_losses: int | None = None
    memory: Memory = field(default_factory=Memory)
    held: dict[str, int] = field(default_factory=dict)
    operators: list[OperatorRow] = field(default_factory=list)
    traced_steps: int | None = None
    ledger: LedgerResult | None = None
    pace: Pace | None = None
    ceilings: Ceilings | None = None
    counters: CounterResult | None = None
    gradient_check: GradientCheck | None = None
    verify: VerifyResult | None = None
    privacy: PrivacyResult | None = None
    ranks: list[RankResult] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def headline_finished(self) -> bool:
        """Whether the first pass, clean or estimate, finished: its figures stand, whatever happened later."""
        outcome = next(iter(self.passes.values()), None)
        return outcome is not None and outcome.status == "finished"

    @property
    def is_estimate(self) -> bool:
        """Whether its figures were computed on fake tensors."""
        return ESTIMATE in self.passes

    @property
    def num_losses(self) -> int:
        """How many losses the timed steps computed."""
        return sum(self.step_samples) or (self.samples_per_step or 0) * len(self.step_s)

    @property
    def failed_passes(self) -> dict[str, str]:
        """Name and reason of each pass that did not finish."""
        return {
            name: outcome.reason or "it did not finish"
            for name, outcome in self.passes.items()
            if outcome.status not in ("finished", "skipped")
        }

    @property
    def skipped_passes(self) -> dict[str, str]:
        """Name and reason of each pass that this machine cannot run."""
        return {
            name: outcome.reason or "" for name, outcome in self.passes.items() if outcome.status == "skipped"
        }

    def to_json(self) -> str:
        """The text of `record.json`."""
        return json.dumps(dataclasses.asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> "Record":
        """Read the text of `record.json`. Raises DpprofError."""
        return cls.from_data(parse(text))

    @classmethod
    def from_data(cls, data: object) -> "Record":
        """A record from what its file holds.

        Raises DpprofError if that is no record, or one of another schema version.
        """
        if not isinstance(data, dict) or "schema_version" not in data:
            raise DpprofError("it is no record of dpprof's")
        version = data["schema_version"]
        if version != SCHEMA_VERSION:
            raise DpprofError(
                f"it has schema version {str(version)[:20]}, this dpprof reads {SCHEMA_VERSION}"
            )
        return typed(cls, data)


@dataclass
class Failure:
    """Why an experiment has no complete record; `error.json`.

    `kind` is `oom`, `killed`, `timeout`, `error`, or `interrupted` when the user stopped it.
    With several ranks `rank` is the one whose end was the others' too.
    `memory` holds the last figures known before it ended, `at` is when, in seconds since the epoch.
    """

    kind: str
    message: str
    traceback: str | None = None
    memory: Memory = field(default_factory=Memory)
    rank: int | None = None
    at: float = field(default_factory=time.time)

    def to_json(self) -> str:
        """The text of `error.json`."""
        return json.dumps(dataclasses.asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> "Failure":
        """Read the text of `error.json`. Raises DpprofError if it is damaged."""
        return typed(cls, parse(text))
