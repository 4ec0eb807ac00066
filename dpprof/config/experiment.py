"""One experiment: the training, and how it is measured or estimated. Plain data; no torch."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypeVar

from dpprof.config.budget import BudgetConfig
from dpprof.config.devices import DEVICES
from dpprof.config.estimating import ESTIMATE, EstimatingConfig
from dpprof.config.measuring import ALONE, SAMPLED_WARMUP_STEPS, MeasuringConfig
from dpprof.config.training import ADAMW_8BIT, OPTIMIZERS, TrainingConfig
from dpprof.errors import refuse
from dpprof.vocabulary.clipping import OTHER_ALGORITHMS
from dpprof.vocabulary.parallel import NONE
from dpprof.vocabulary.settings import OptionValue, take
from dpprof.vocabulary.trainers import trainer_info

T = TypeVar("T")


@dataclass(frozen=True)
class ExperimentConfig(TrainingConfig):
    """One experiment: trainer x model x batch size x sequence length x precision x device.

    `how` are the settings of measuring or of estimating. `budget` is the whole training of which a few steps
    are measured. `options` are the trainer's and workload's own options by name; missing ones have their
    default.
    """

    how: MeasuringConfig | EstimatingConfig = field(default_factory=MeasuringConfig)
    budget: BudgetConfig = field(default_factory=BudgetConfig)
    options: Mapping[str, OptionValue] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        """Check settings against each other. Raises ConfigError."""
        super().__post_init__()
        self.budget.check_used()
        if isinstance(self.how, EstimatingConfig):
            if self.device == "cpu" and self.how.target in DEVICES:
                raise refuse("target", self.how.target, "none with device=cpu; give device_memory_gib")
        elif self.parallel != NONE and self.counters != "off":
            raise refuse("counters", self.counters, "off with several ranks")
        elif self.poisson_sampling and self.how.warmup_steps < SAMPLED_WARMUP_STEPS:
            raise refuse(
                "warmup_steps",
                self.how.warmup_steps,
                f"{SAMPLED_WARMUP_STEPS} or more with poisson_sampling=true: a full batch, an empty one and "
                "a sampled one",
            )

    @property
    def is_estimate(self) -> bool:
        """True if nothing is measured: the step runs on fake tensors."""
        return isinstance(self.how, EstimatingConfig)

    @property
    def measuring(self) -> MeasuringConfig:
        """Measuring settings. Not for an estimate."""
        assert isinstance(self.how, MeasuringConfig), "an estimate is not measured"
        return self.how

    @property
    def estimating(self) -> EstimatingConfig:
        """Estimating settings. Not for a measured experiment."""
        assert isinstance(self.how, EstimatingConfig), "it is measured, not estimated"
        return self.how

    @property
    def pass_names(self) -> list[str]:
        """Passes in the order in which they run."""
        if isinstance(self.how, EstimatingConfig):
            return [ESTIMATE]
        return [name for name in self.how.pass_names if name != ALONE or self.parallel != NONE]

    @property
    def counters(self) -> str:
        """Mode of hardware counters: off, auto or ncu; off for an estimate."""
        return "off" if self.is_estimate else self.measuring.counters

    @property
    def estimated_batch(self) -> int:
        """Samples in an estimated step: a size that few Poisson-sampled batches exceed."""
        if not self.poisson_sampling:
            return self.batch_size
        return largest_batch(self.batch_size, self.estimating.poisson_tail)

    @property
    def logical_batch(self) -> int:
        """Samples of a step on all ranks; the expected number under Poisson sampling."""
        return self.batch_size * self.accumulation_steps * self.world_size

    @property
    def trainer_options(self) -> Any:
        """The trainer's own settings, an instance of `TrainerInfo.options`; None if it has none."""
        options = trainer_info(self.trainer).options
        return None if options is None else self.options_of(options)

    @property
    def other_algorithm(self) -> str:
        """Difference of the algorithm from DP-SGD with flat clipping, if there is one."""
        of_clipping = OTHER_ALGORITHMS.get(str(self.options.get("clipping", "")), "")
        return of_clipping or trainer_info(self.trainer).other_algorithm

    def options_of(self, kind: type[T]) -> T:
        """Return a trainer's or a workload's own options as their dataclass."""
        return take(kind, self.options)[0]

    def resolve(self, *, cuda_available: bool) -> Self:
        """Replace every `auto` and 0 by its value on this machine; an estimate needs no CUDA.

        Raises ConfigError as `TrainingConfig.resolve`, if the data set is too small or delta too large, or if
        the optimizer can only be estimated.
        """
        if self.budget.dataset_size and trainer_info(self.trainer).is_private:
            self.budget.check_batch("batch_size", self.batch_size, self.logical_batch)
            self.budget.check_strength()
        if isinstance(self.how, EstimatingConfig):
            # An estimate needs no CUDA; a file of times says what it is for.
            times = self.how.read_times()
            on_cuda = times is None or "cuda" in (times.device, self.device)
            resolved = super().resolve(cuda_available=on_cuda)
            how = self.how.resolve(times, resolved.device, resolved.world_size)
            return replace(resolved, how=how)
        if self.optimizer == ADAMW_8BIT:
            known = ", ".join(name for name in OPTIMIZERS if name != ADAMW_8BIT)
            only = f"{known}: dpprof knows its state by a formula, so it estimates this one alone"
            raise refuse("optimizer", self.optimizer, only)
        return super().resolve(cuda_available=cuda_available)


def largest_batch(expected: float, tail: float) -> int:
    """Return the smallest size that at most a share `tail` of Poisson-sampled batches exceed."""

    def probability(size: int) -> float:
        return math.exp(size * math.log(expected) - expected - math.lgamma(size + 1))

    size = math.ceil(expected)
    while probability(size) > 1e-9 * tail:  # the rest is negligible
        size += 1
    exceeding = 0.0
    while size > 0 and exceeding + probability(size) <= tail:
        exceeding += probability(size)
        size -= 1
    return size
