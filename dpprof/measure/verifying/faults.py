"""What is wrong with a gradient that is not the naive loop's, in a sentence.

Any weighted sum of the samples' gradients shows its weights: least squares finds the factor by which each
sample was really multiplied, and these tell the faults of clipping apart.
"""

import torch
from torch import Tensor

from dpprof.measure.trainers.reference import global_norm
from dpprof.measure.verifying.setting import Setting
from dpprof.vocabulary.formats import listed

_NEARLY = 1e-2  # two factors that differ by less count as equal
_FEW = 3


def what_is_wrong(
    setting: Setting,
    gradients: list[Tensor],
    right: list[Tensor],
    samples: list[list[Tensor]],
    tolerance: float,
) -> str:
    """The fault of a gradient of these samples, given the right one; all in float64."""
    if not all(gradient.isfinite().all() for gradient in gradients):
        return "the gradient is NaN or infinite, and that of the naive loop is finite"
    missing = [
        name
        for name, gradient, reference in zip(setting.names, gradients, right, strict=True)
        if not gradient.any() and reference.any()
    ]
    if missing:
        return f"{_few(missing)} {'get' if len(missing) > 1 else 'gets'} no gradient"
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
    return f"the gradient is wrong in {_few(wrong or worst[:1])}, and no sum of the samples' gradients"


def _factors(gradients: list[Tensor], samples: list[list[Tensor]], tolerance: float) -> list[float] | None:
    """What each sample's gradient was multiplied by in the mean; None if it is no such mean, or if that
    cannot be told."""
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


def _few(names: list[str]) -> str:
    shown = names[:_FEW]
    return listed(shown) if len(names) <= _FEW else f"{', '.join(shown)} and {len(names) - _FEW} more"
