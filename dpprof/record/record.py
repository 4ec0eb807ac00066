"""The measurements of one experiment (`record.json`) in bytes and seconds; None if not measured."""

import time
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from dpprof.config.estimating import ESTIMATE
from dpprof.errors import DpprofError
from dpprof.json_files import typed
from dpprof.record.counters import CounterResult
from dpprof.record.ledger import LedgerResult
from dpprof.vocabulary.precision import dtypes_in_words


@dataclass
class PrivacyResult:
    """An accountant's inputs and its answer: `epsilon` at `delta`.

    `epsilon` is None where no answer would be true; `why_none` then says why. `weakened` are sentences on
    what the measured steps lack for the guarantee to hold for them, and on how loose it is.
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
        """Sentences on why there is no epsilon, or on what weakens it."""
        return [f"there is no epsilon: {self.why_none}"] if self.epsilon is None else self.weakened


@dataclass
class VerifyCheck:
    """One check, named as in `vocabulary.verify_checks`.

    `outcome` is `pass`, `fail` or `warning`; `said` is the finding in a sentence. `measured` is the check's
    number, if it has one, and passes up to `allowed`. `chance` is the p-value of the noise seen, corrected
    for all tests of all checks; one that is too small fails.
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

    `max_grad_norm` is the clipping norm; `noise_deviation` is the noise's standard deviation over the
    requested one. `dropout_off` tells that the model's dropout was switched off; `doubt` why nothing could be
    checked.
    """

    checks: list[VerifyCheck] = field(default_factory=list)
    max_grad_norm: float | None = None
    noise_deviation: float | None = None
    num_noise_tests: int = 0
    dropout_off: bool = False
    doubt: str | None = None


@dataclass(frozen=True)
class Predicted:
    """A plan's prediction for one experiment; None where not known.

    `peak_bytes` is the allocator's peak, from an estimate in the folder `estimate`. The step takes between
    `step_s_least` and `step_s_most` on the device `target` (empty: on this machine's processor);
    `time_basis` says what this rests on.
    """

    plan: str
    peak_bytes: int | None = None
    estimate: str = ""
    step_s_least: float | None = None
    step_s_most: float | None = None
    time_basis: str = ""
    target: str = ""


SCHEMA_VERSION = 2


class PassStatus(StrEnum):
    """Status of a pass; one that this machine cannot run is skipped."""

    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    SKIPPED = "skipped"


class FailureKind(StrEnum):
    """Kind of failure; interrupted means stopped by the user."""

    OOM = "oom"
    KILLED = "killed"
    TIMEOUT = "timeout"
    ERROR = "error"
    INTERRUPTED = "interrupted"


@dataclass
class PassOutcome:
    """Outcome of one pass."""

    status: PassStatus
    reason: str | None = None
    seconds: float | None = None


@dataclass
class Memory:
    """Memory figures in bytes.

    On CUDA they come from the allocator's statistics during the clean pass; on the CPU, where torch keeps
    none, from the allocator's events during the memory pass. `step_peak` and the peaks leave out warm-up;
    `first_step_peak` is that of the very first step, which also allocates optimizer state. `phase_peak` comes
    from the memory pass on every device. `saved` is how much each saving that the loop does not use, and all
    of them together, would lower the peak (`loops.savings_to_measure`).
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
    """One operator in one phase, summed over the traced steps.

    `self_s` is host time in the operator itself, `device_self_s` the time of the kernels that it launched
    (CUDA only). `allocated` counts bytes allocated while it was the innermost operator.
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
        """Raise ValueError unless each step has its fixed computation."""
        if len(self.step_s) != len(self.fixed_s):
            raise ValueError(f"{len(self.step_s)} steps, but {len(self.fixed_s)} fixed computations")

    @property
    def ratios(self) -> list[float]:
        """Duration of each step in units of its fixed computation."""
        return [step / fixed for step, fixed in zip(self.step_s, self.fixed_s, strict=True)]


@dataclass
class Ceilings:
    """Best rates of this machine: bytes/s that a large copy moves, FLOP/s of a large matrix product."""

    copy_bytes_per_s: float
    matmul_flop_per_s: float
    precision: str


@dataclass
class GradientCheck:
    """A trainer's clipped gradient without noise, compared with a naive loop over samples in float64.

    Relative errors are L2, ||g - reference|| / ||reference||, in float64, float32 and, where the experiment
    trains in TF32 or bf16, as it does. `rounding` has the naive loop's own error where the trainer's is above
    its tolerance, by `float32`, `tf32` or `bfloat16`. `computed_in` is the least precise type that the model
    computes in when its weights are float64. `dropout_off` tells that the model's dropout was switched off.
    `fault` is an error besides these, `doubt` the reason why the check cannot judge.
    """

    relative_error_float64: float | None = None
    relative_error_float32: float | None = None
    relative_error_bf16: float | None = None
    relative_error_tf32: float | None = None
    rounding: dict[str, float] = field(default_factory=dict)
    computed_in: str = "float64"
    dropout_off: bool = False
    fault: str | None = None
    doubt: str | None = None


@dataclass
class ParameterGroup:
    """Parameters of one kind (`Linear.weight`, `lora_A.weight`) that are treated alike.

    `tensors` and `numbers` count tensors and their elements; `per_sample` tells that the trainer computes
    their per-sample gradients; `moved` that the clean pass's steps changed them (None without a step on
    data). `dtype` is their type in the built model, as `bf16` (empty: not known, of an earlier version).
    """

    kind: str
    tensors: int
    numbers: int
    trains: bool
    per_sample: bool
    moved: bool | None = None
    dtype: str = ""


@dataclass
class RankResult:
    """Measurements of one rank, in bytes and seconds; an estimate has only the peak and its phase.

    `alone_step_s` are the same steps without other ranks (the alone pass).
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
    """All measurements of one experiment.

    `started_at` and `ended_at` (so far) are seconds since the epoch. `step_samples` are the samples of each
    timed step where they vary; `samples_per_step` and `tokens_per_step` are then expected values. `timed_s`
    is from the first timed step to the last, including gaps. During it `involuntary_switches` counts
    preemptions by other processes, and `others_processor_s` is the time that others used the processors open
    to this process: if either is large, the step times are too long. `nonfinite_losses` counts losses of the
    timed steps that are NaN or infinite. `warnings` are caveats about the workload, `unbounded` those of them
    that leave no guarantee; `changed` lists changes made to its model for training. With several ranks
    `step_s` and `phase_s` are the slowest rank's, all else rank 0's; `ranks` has each measured or estimated
    rank.
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
    unbounded: list[str] = field(default_factory=list)

    @property
    def weights(self) -> dict[str, int]:
        """Numbers of parameters by their type, as `{"bf16": 1234, "fp32": 56}`; empty if not known."""
        found: dict[str, int] = {}
        for group in self.parameters:
            found[group.dtype] = found.get(group.dtype, 0) + group.numbers
        return {} if "" in found else found

    @property
    def weights_dtype(self) -> str:
        """Types of the weights in words: `bf16`, `bf16 and fp32`; empty if not known."""
        return dtypes_in_words(self.weights)

    @property
    def headline_finished(self) -> bool:
        """True if the first pass (clean or estimate) finished: its figures stand, whatever happened later."""
        outcome = next(iter(self.passes.values()), None)
        return outcome is not None and outcome.status == PassStatus.FINISHED

    @property
    def is_estimate(self) -> bool:
        """True if the figures were computed on fake tensors."""
        return ESTIMATE in self.passes

    @property
    def failed_passes(self) -> dict[str, str]:
        """Name and reason of each pass that did not finish."""
        return {
            name: outcome.reason or "it did not finish"
            for name, outcome in self.passes.items()
            if outcome.status not in (PassStatus.FINISHED, PassStatus.SKIPPED)
        }

    @property
    def skipped_passes(self) -> dict[str, str]:
        """Name and reason of each pass that this machine cannot run."""
        return {
            name: outcome.reason or ""
            for name, outcome in self.passes.items()
            if outcome.status == PassStatus.SKIPPED
        }

    @classmethod
    def from_data(cls, data: object) -> "Record":
        """Build a record from parsed JSON. Raises DpprofError for anything else or another schema."""
        if not isinstance(data, dict) or "schema_version" not in data:
            raise DpprofError("it is no record of dpprof's")
        version = data["schema_version"]
        if version != SCHEMA_VERSION:
            raise DpprofError(
                f"it has schema version {str(version)[:20]}, this dpprof reads {SCHEMA_VERSION}"
            )
        ledger = data.get("ledger")
        if isinstance(ledger, dict):
            # Of no use any more, and always 0: 0.3.0.dev0 wrote it.
            data = data | {"ledger": {name: ledger[name] for name in ledger if name != "block_rounding"}}
        return typed(cls, data)


@dataclass
class Failure:
    """Reason that an experiment has no complete record; `error.json`.

    `rank` is the one that failed first, `memory` the last known figures, `at` seconds since the epoch.
    """

    kind: FailureKind
    message: str
    traceback: str | None = None
    memory: Memory = field(default_factory=Memory)
    rank: int | None = None
    at: float = field(default_factory=time.time)
