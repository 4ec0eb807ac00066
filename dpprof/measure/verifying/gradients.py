"""Compares the gradient of a step without noise with the naive loop's.

Least squares finds each sample's factor in the sum; the factors tell the faults of clipping apart.
"""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from dpprof.measure.gradient_check import Case, Undecidable, switch_dropout_off
from dpprof.measure.trainers.reference import global_norm, relative_error
from dpprof.measure.trainers.trial_batch import tried
from dpprof.measure.verifying.setting import ACCUMULATED, Setting, limit_check
from dpprof.record.figures.verdicts import PASS
from dpprof.record.record import VerifyCheck
from dpprof.vocabulary.formats import listed

_NEARLY = 1e-2  # two factors that differ by less count as equal
_MOST_SAMPLES = 64
_AS_MANY = "gradient_as_many_samples"


def checks(setting: Setting) -> Iterator[VerifyCheck]:
    """Check one physical batch, several, and a second step, in float64 and as the run computes."""
    case = setting.case
    for way in ("float64", setting.way):
        batches = case.moved(way)
        name = f"gradient_{way.replace('bfloat16', 'bf16')}"
        trainer = case.trainer(way, setting.max_grad_norm, accumulation_steps=1, lr=0.0)
        gradients = case.gradients(trainer, way, batches[:1])
        yield compare(setting, name, way, gradients, setting.samples(0, 1))
        if way == "float64":
            gradients = case.gradients(trainer, way, batches[1:2])
            yield compare(setting, "gradient_next_step", way, gradients, setting.samples(1, 1))
            if case.is_private:
                yield _unclipped(setting)
        trainer = case.trainer(way, setting.max_grad_norm)
        gradients = case.gradients(trainer, way, batches)
        yield compare(setting, name + ACCUMULATED, way, gradients, setting.per_sample)


def _unclipped(setting: Setting) -> VerifyCheck:
    """Check a batch in which no sample's norm needs clipping."""
    case, way = setting.case, "float64"
    largest = max(float(global_norm(sample)) for sample in setting.samples(0, 1))
    above = replace(setting, max_grad_norm=2 * largest)
    trainer = case.trainer(way, above.max_grad_norm, accumulation_steps=1)
    gradients = case.gradients(trainer, way, case.moved(way)[:1])
    return compare(above, "gradient_unclipped", way, gradients, setting.samples(0, 1))


def compare(
    setting: Setting, name: str, way: str, gradients: list[Tensor], samples: list[list[Tensor]]
) -> VerifyCheck:
    """Compare gradients with those of the naive loop for these samples."""
    right = setting.clipped_mean(samples)
    gradients = [gradient.double() for gradient in gradients]
    error, allowed = relative_error(gradients, right), setting.tolerance(way)
    wrong = "" if error <= allowed else _fault(setting, gradients, right, samples, allowed)
    return limit_check(name, error, allowed, f"off by {error:.1e}", f"{wrong} (off by {error:.1e})")


def checks_of_shared_rows(setting: Setting, share: float) -> Iterator[VerifyCheck]:
    """Check batches with as many samples as a tensor has rows shared by all samples, in float64.

    Such rows look like samples. `share` of the samples are clipped. No check if no tensor has such rows.
    """
    for size in _sizes(setting):
        case = Case(replace(setting.case.config, batch_size=size, accumulation_steps=1))
        switch_dropout_off(case.workload.model)
        per_sample = case.per_sample_gradients(setting.tolerance("float64"))
        norm = case.norm_that_clips(per_sample, share=share)
        sized = replace(setting, case=case, per_sample=per_sample, max_grad_norm=norm)
        try:
            trainer = case.trainer("float64", norm, lr=0.0)
            gradients = case.gradients(trainer, "float64")
        except Undecidable:
            raise
        except ValueError as error:
            yield VerifyCheck(_AS_MANY, PASS, f"{size} samples are refused: {str(error)[:160]}")
            continue
        yield compare(sized, _AS_MANY, "float64", gradients, per_sample)


def _sizes(setting: Setting) -> list[int]:
    """Return the smallest and the largest usable length of tensors that do not grow with the batch."""
    case, way = setting.case, "float64"
    trainer = case.trainer(way, setting.max_grad_norm)
    trial = tried(trainer, case.moved(way)[0], case.config.batch_size)
    lengths = sorted({n for found in trial.lengths.values() for n in found} - {trial.size})
    able = [n for n in lengths if 1 < n <= _MOST_SAMPLES and n != case.config.batch_size]
    return sorted({*able[:1], *able[-1:]})


def _fault(
    setting: Setting,
    gradients: list[Tensor],
    right: list[Tensor],
    samples: list[list[Tensor]],
    tolerance: float,
) -> str:
    if not all(gradient.isfinite().all() for gradient in gradients):
        return "the gradient is NaN or infinite, and that of the naive loop is finite"
    missing = [
        name
        for name, gradient, reference in zip(setting.names, gradients, right, strict=True)
        if not gradient.any() and reference.any()
    ]
    if missing:
        return f"{listed(missing)} {'get' if len(missing) > 1 else 'gets'} no gradient"
    expected = [setting.factors(sample) for sample in samples]
    factors = _factors(gradients, samples, max(10 * tolerance, 1e-6))
    if factors is not None and all(max(row) - min(row) < 1e-12 for row in expected):
        return _fault_of_factors(setting, factors, [row[0] for row in expected])
    off = {
        name: float(global_norm([gradient - reference]) / global_norm(right))
        for name, gradient, reference in zip(setting.names, gradients, right, strict=True)
    }
    worst = sorted(off, key=lambda name: -off[name])
    wrong = [name for name in worst if off[name] > tolerance]
    return f"the gradient is wrong in {listed(wrong or worst[:1])}, and no sum of the samples' gradients"


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


def _fault_of_factors(setting: Setting, factors: list[float], expected: list[float]) -> str:
    ratios = [factor / right for factor, right in zip(factors, expected, strict=True)]
    wrong = [i for i, ratio in enumerate(ratios) if not _equal(ratio, 1)]
    told = f"{', '.join(f'{factor:.3g}' for factor in factors[:8])}"
    rights = f"{', '.join(f'{factor:.3g}' for factor in expected[:8])}"
    both = f"factors of {told} where {rights} are right"
    if setting.max_grad_norm is not None and all(_equal(factor, 1) for factor in factors):
        return f"no sample is clipped: {both}"
    if all(_equal(ratio, ratios[0]) for ratio in ratios):
        return f"the whole gradient is {ratios[0]:.3g} times the right one"
    if setting.max_grad_norm is not None and all(_equal(factor, factors[0]) for factor in factors):
        return f"all samples are scaled alike: the sum is clipped, not each sample's gradient ({both})"
    unclipped = [i for i in wrong if _equal(factors[i], 1)]
    if wrong and len(wrong) < len(factors) and unclipped == wrong:
        whose = f"sample {wrong[0]}" if len(wrong) == 1 else f"samples {', '.join(map(str, wrong))}"
        return f"the gradient of {whose} is in the sum unclipped: {both}"
    return f"samples are clipped by another norm than that of their whole gradient: {both}"


def _equal(one: float, other: float) -> bool:
    return abs(one - other) <= _NEARLY * abs(other)
