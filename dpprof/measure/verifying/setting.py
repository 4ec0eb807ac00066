"""What all checks of one trainer share: its model, its samples' true gradients, and how the run computes."""

from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from dpprof.figures.gradient_verdict import FAIL, PASS, TOLERANCES
from dpprof.measure.gradient_check import Case
from dpprof.measure.trainers.build import clip_rule
from dpprof.measure.trainers.reference import clipped_mean, norms_of
from dpprof.record.verify import VerifyCheck

ACCUMULATED = "_accumulated"


@dataclass(frozen=True)
class Setting:
    """A trainer to verify.

    `per_sample` are the naive loop's gradients in float64, of every sample of every physical batch; `way` is
    how the run computes, `float32` or `bfloat16`; `computed_in` the least precise type that the model itself
    computes in; `noise_multiplier` the run's, or 1 if that is 0.
    """

    case: Case
    per_sample: list[list[Tensor]]
    max_grad_norm: float | None
    way: str
    computed_in: str
    noise_multiplier: float

    @property
    def batch_size(self) -> int:
        """Samples in a physical batch, of all ranks."""
        return self.case.batch_size

    @cached_property
    def names(self) -> list[str]:
        """The names of the trainable parameters."""
        return [n for n, p in self.case.workload.model.named_parameters() if p.requires_grad]

    def tolerance(self, way: str) -> float:
        """The largest relative error that rounding explains."""
        return max(TOLERANCES[way], TOLERANCES[self.computed_in])

    def samples(self, first: int, num_batches: int) -> list[list[Tensor]]:
        """The true gradients of the samples of some physical batches, from the batch `first` on."""
        return self.per_sample[first * self.batch_size : (first + num_batches) * self.batch_size]

    def clipped_mean(self, samples: list[list[Tensor]]) -> list[Tensor]:
        """What a step on these samples must leave in `p.grad` with noise off, in float64."""
        return clipped_mean(samples, self.max_grad_norm, clip_rule(self.case.config))

    def factors(self, sample: list[Tensor]) -> list[float]:
        """What a sample's gradient must be multiplied by, for each parameter."""
        if self.max_grad_norm is None:
            return [1.0] * len(sample)
        rule = clip_rule(self.case.config)
        factors: list[float] = rule(norms_of(sample), self.max_grad_norm).tolist()
        return factors


def held_against(name: str, measured: float, allowed: float, right: str, wrong: str) -> VerifyCheck:
    """A check that passes up to what is allowed; a measured NaN fails."""
    passed = measured <= allowed
    return VerifyCheck(name, PASS if passed else FAIL, right if passed else wrong, measured, allowed)
