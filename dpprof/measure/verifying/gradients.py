"""Compares the gradient of a step without noise with the naive loop's.

Least squares finds each sample's factor in the sum; the factors tell the faults of clipping apart.
"""

import copy
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from dpprof.errors import WorkloadError
from dpprof.measure.gradient_check import Case, switch_dropout_off
from dpprof.measure.trainers.build import clip_rule
from dpprof.measure.trainers.reference import global_norm, norms_of, relative_error
from dpprof.measure.trainers.trial_batch import tried
from dpprof.record.figures.verdicts import FAIL, PASS
from dpprof.record.record import VerifyCheck
from dpprof.vocabulary.formats import listed

ACCUMULATED = "_accumulated"
_NEARLY = 1e-2  # two factors that differ by less count as equal
_MOST_SAMPLES = 64
_AS_MANY = "gradient_as_many_samples"


def checks(case: Case) -> Iterator[VerifyCheck]:
    """Check one physical batch, several, and a second step, in float64 and as the run computes."""
    for way in ("float64", case.way):
        batches = case.moved(way)
        name = f"gradient_{way.replace('bfloat16', 'bf16')}"
        trainer = case.trainer(way, accumulation_steps=1, lr=0.0)
        gradients = case.gradients(trainer, way, batches[:1])
        yield compare(case, name, way, gradients, _samples(case, 0))
        if way == "float64":
            gradients = case.gradients(trainer, way, batches[1:2])
            yield compare(case, "gradient_next_step", way, gradients, _samples(case, 1))
            if case.is_private:
                yield _unclipped(case)
        gradients = case.gradients(case.trainer(way), way, batches)
        yield compare(case, name + ACCUMULATED, way, gradients, case.per_sample)


def _unclipped(case: Case) -> VerifyCheck:
    """Check a batch in which no sample's norm needs clipping."""
    samples, way = _samples(case, 0), "float64"
    above = copy.copy(case)
    above.max_grad_norm = 2 * max(float(global_norm(sample)) for sample in samples)
    gradients = above.gradients(above.trainer(way, accumulation_steps=1), way, case.moved(way)[:1])
    return compare(above, "gradient_unclipped", way, gradients, samples)


def _samples(case: Case, index: int) -> list[list[Tensor]]:
    """Return the true gradients of the samples of one physical batch."""
    return case.per_sample[index * case.batch_size : (index + 1) * case.batch_size]


def compare(
    case: Case, name: str, way: str, gradients: list[Tensor], samples: list[list[Tensor]]
) -> VerifyCheck:
    """Compare gradients with those of the naive loop for these samples."""
    right = case.clipped_mean(samples)
    gradients = [gradient.double() for gradient in gradients]
    error = relative_error(gradients, right)
    allowed = case.limit(way, error)
    wrong = "" if error <= allowed else _fault(case, gradients, right, samples, allowed)
    return limit_check(name, error, allowed, f"off by {error:.1e}", f"{wrong} (off by {error:.1e})")


def limit_check(name: str, measured: float, allowed: float, right: str, wrong: str) -> VerifyCheck:
    """Return a check that passes up to the allowed value; a measured NaN fails."""
    passed = measured <= allowed
    return VerifyCheck(name, PASS if passed else FAIL, right if passed else wrong, measured, allowed)


def checks_of_shared_rows(case: Case, share: float) -> Iterator[VerifyCheck]:
    """Check batches with as many samples as a tensor has rows shared by all samples, in float64.

    Such rows look like samples. `share` of the samples are clipped. No check if no tensor has such rows.
    """
    for size in _sizes(case):
        sized = Case(replace(case.config, batch_size=size, accumulation_steps=1))
        sized.computed_in = case.computed_in
        switch_dropout_off(sized.workload.model)
        per_sample = sized.per_sample_gradients(share=share)
        try:
            gradients = sized.gradients(sized.trainer("float64", lr=0.0), "float64")
        except (ValueError, WorkloadError) as error:
            yield VerifyCheck(_AS_MANY, PASS, f"{size} samples are refused: {str(error)[:160]}")
            continue
        yield compare(sized, _AS_MANY, "float64", gradients, per_sample)


def _sizes(case: Case) -> list[int]:
    """Return the smallest and the largest usable length of tensors that do not grow with the batch."""
    trial = tried(case.trainer("float64"), case.moved("float64")[0], case.config.batch_size)
    lengths = sorted({n for found in trial.lengths.values() for n in found} - {trial.size})
    able = [n for n in lengths if 1 < n <= _MOST_SAMPLES and n != case.config.batch_size]
    return sorted({*able[:1], *able[-1:]})


def _fault(
    case: Case, gradients: list[Tensor], right: list[Tensor], samples: list[list[Tensor]], tolerance: float
) -> str:
    if not all(gradient.isfinite().all() for gradient in gradients):
        return "the gradient is NaN or infinite, and that of the naive loop is finite"
    missing = [
        name
        for name, gradient, reference in zip(case.names, gradients, right, strict=True)
        if not gradient.any() and reference.any()
    ]
    if missing:
        return f"{listed(missing)} {'get' if len(missing) > 1 else 'gets'} no gradient"
    expected = [_right_factors(case, sample) for sample in samples]
    factors = _factors(gradients, samples, max(10 * tolerance, 1e-6))
    if factors is not None and all(max(row) - min(row) < 1e-12 for row in expected):
        return _fault_of_factors(case, factors, [row[0] for row in expected])
    off = {
        name: float(global_norm([gradient - reference]) / global_norm(right))
        for name, gradient, reference in zip(case.names, gradients, right, strict=True)
    }
    worst = sorted(off, key=lambda name: -off[name])
    wrong = [name for name in worst if off[name] > tolerance]
    return f"the gradient is wrong in {listed(wrong or worst[:1])}, and no sum of the samples' gradients"


def _right_factors(case: Case, sample: list[Tensor]) -> list[float]:
    """Return the right factor of a sample's gradient, for each parameter."""
    if case.max_grad_norm is None:
        return [1.0] * len(sample)
    return clip_rule(case.config)(norms_of(sample), case.max_grad_norm).tolist()


def _factors(gradients: list[Tensor], samples: list[list[Tensor]], tolerance: float) -> list[float] | None:
    """Return each sample's factor in the mean; None if there are none or the system is ill-conditioned."""
    flat_NP = torch.stack([torch.cat([g.flatten() for g in sample]) for sample in samples])
    mean_P = torch.cat([gradient.flatten() for gradient in gradients])
    gram_NN = flat_NP @ flat_NP.T
    scales_N = gram_NN.diagonal().sqrt().clamp(min=1e-300)
    scaled = gram_NN / scales_N / scales_N[:, None]
    if float(torch.linalg.cond(scaled)) > 1e10:
        return None
    factors_N = torch.linalg.solve(scaled, flat_NP @ mean_P / scales_N) / scales_N
    rest = float(torch.linalg.vector_norm(mean_P - factors_N @ flat_NP) / torch.linalg.vector_norm(mean_P))
    return None if rest > tolerance else (factors_N * len(samples)).tolist()


def _fault_of_factors(case: Case, factors: list[float], expected: list[float]) -> str:
    ratios = [factor / right for factor, right in zip(factors, expected, strict=True)]
    wrong = [i for i, ratio in enumerate(ratios) if not _equal(ratio, 1)]
    told, rights = (", ".join(f"{factor:.3g}" for factor in some[:8]) for some in (factors, expected))
    both = f"factors of {told} where {rights} are right"
    if case.max_grad_norm is not None and all(_equal(factor, 1) for factor in factors):
        return f"no sample is clipped: {both}"
    if all(abs(ratio - 1) < 1e-3 for ratio in ratios):
        return (
            "the clip factors are nearly right. Something small added, as in norm + 1e-6, does this: "
            "override the static method clip_factor, to which the step is then held"
        )
    if all(_equal(ratio, ratios[0]) for ratio in ratios):
        return f"the whole gradient is {ratios[0]:.3g} times the right one"
    if case.max_grad_norm is not None and all(_equal(factor, factors[0]) for factor in factors):
        return f"all samples are scaled alike: the sum is clipped, not each sample's gradient ({both})"
    unclipped = [i for i in wrong if _equal(factors[i], 1)]
    if wrong and len(wrong) < len(factors) and unclipped == wrong:
        whose = f"sample {wrong[0]}" if len(wrong) == 1 else f"samples {', '.join(map(str, wrong))}"
        return f"the gradient of {whose} is in the sum unclipped: {both}"
    return f"samples are clipped by another norm than that of their whole gradient: {both}"


def _equal(one: float, other: float) -> bool:
    return abs(one - other) <= _NEARLY * abs(other)
