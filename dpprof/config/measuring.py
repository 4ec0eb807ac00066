"""Measuring settings of an experiment: its steps and its passes."""

from dataclasses import dataclass

from dpprof.config.counter_metrics import metric_names
from dpprof.errors import refuse
from dpprof.vocabulary.settings import setting

CLEAN, ALONE = "clean", "alone"
PASS_NAMES = (
    CLEAN,
    ALONE,
    "pace",
    "memory",
    "trace",
    "ceilings",
    # These take no times.
    "ledger",
    "gradient_check",
    "verify",
)
_LISTED = ", ".join(PASS_NAMES)
# Warm-up under Poisson sampling: a full batch, an empty one and a sampled one.
SAMPLED_WARMUP_STEPS = 3


@dataclass(frozen=True)
class MeasuringConfig:
    """Measuring settings of an experiment."""

    warmup_steps: int = setting(3, "Steps before anything is measured, at least one.", minimum=1)
    measured_steps: int = setting(10, "Timed steps of the clean pass.", minimum=1)
    passes: str = setting(
        "clean,alone,memory,ledger,trace",
        f"Passes to run, comma-separated, clean among them: {_LISTED}. One rank has no alone pass.",
    )
    counters: str = setting(
        "off",
        "Count hardware events of one step in a second process under Nsight Compute: off; auto, if this "
        "machine can; ncu, which fails if it cannot.",
        choices=("off", "auto", "ncu"),
    )
    counter_metrics: str = setting(
        "basic",
        "Metrics to count, comma-separated: basic, full, Nsight Compute's full names "
        "(sm__cycles_active.sum), nvprof's old ones.",
    )

    def __post_init__(self) -> None:
        unknown = [name for name in self.pass_names if name not in PASS_NAMES]
        if unknown or "clean" not in self.pass_names:
            raise refuse("passes", self.passes, f"clean, and with it any of {', '.join(PASS_NAMES[1:])}")
        if metric_names(self.counter_metrics) != metric_names("basic") and self.counters == "off":
            raise refuse("counter_metrics", self.counter_metrics, "basic, or with it counters=auto")

    @property
    def pass_names(self) -> tuple[str, ...]:
        """Requested passes in the order in which they run."""
        asked = {name.strip() for name in self.passes.split(",")}
        return tuple(name for name in PASS_NAMES if name in asked) + tuple(sorted(asked - set(PASS_NAMES)))
