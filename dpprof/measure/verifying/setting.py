"""The setting that all checks of one trainer share."""

from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from dpprof.measure.gradient_check import Case
from dpprof.measure.trainers.build import clip_rule
from dpprof.measure.trainers.reference import clipped_mean, norms_of
from dpprof.record.figures.verdicts import FAIL, PASS, TOLERANCES
from dpprof.record.record import VerifyCheck

ACCUMULATED = "_accumulated"


@dataclass(frozen=True)
class Setting:
    """A trainer to verify.

    `per_sample` are the naive loop's float64 gradients of every sample of every physical batch; `way` is how
    the run computes, `float32` or `bfloat16`; `computed_in` is the least precise type that the model itself
    computes in; `noise_multiplier` is the run's, or 1 if that is 0.
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
        """Names of the trainable parameters."""
        return [n for n, p in self.case.workload.model.named_parameters() if p.requires_grad]

    def tolerance(self, way: str) -> float:
        """Return the largest relative error that rounding explains."""
        return max(TOLERANCES[way], TOLERANCES[self.computed_in])

    def samples(self, first: int, num_batches: int) -> list[list[Tensor]]:
        """Return the true gradients of the samples of some physical batches, from the batch `first` on."""
        return self.per_sample[first * self.batch_size : (first + num_batches) * self.batch_size]

    def clipped_mean(self, samples: list[list[Tensor]]) -> list[Tensor]:
        """Return the gradient in float64 that a step on these samples must leave with noise off."""
        return clipped_mean(samples, self.max_grad_norm, clip_rule(self.case.config))

    def factors(self, sample: list[Tensor]) -> list[float]:
        """Return the right factor of a sample's gradient, for each parameter."""
        if self.max_grad_norm is None:
            return [1.0] * len(sample)
        rule = clip_rule(self.case.config)
        factors: list[float] = rule(norms_of(sample), self.max_grad_norm).tolist()
        return factors


def limit_check(name: str, measured: float, allowed: float, right: str, wrong: str) -> VerifyCheck:
    """Return a check that passes up to the allowed value; a measured NaN fails."""
    passed = measured <= allowed
    return VerifyCheck(name, PASS if passed else FAIL, right if passed else wrong, measured, allowed)
