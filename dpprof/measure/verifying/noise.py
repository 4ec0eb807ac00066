"""Tests the noise that a step adds to the clipped gradient, over a few steps from the same weights.

The noise is the gradient with noise minus that without. Each test gives a two-sided p-value, exact or an
upper bound for any number of values, so that it raises no more false alarms than it says. The Bonferroni
correction covers the numbers of tests and of checks.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dpprof.measure.gradient_check import Case
from dpprof.measure.verifying.gradients import ACCUMULATED
from dpprof.record.figures.verdicts import FAIL, PASS
from dpprof.record.record import VerifyCheck, VerifyResult
from dpprof.vocabulary.verify_checks import FALSE_ALARM_RATE

NUM_STEPS = 4
# The four checks, each for one physical batch and for several.
_NUM_CHECKS = 8
# Most values of a parameter to compare with those of others.
_PREFIX = 4096
_NEARLY = 0.02


@dataclass
class Noise:
    """Noise of some steps in requested standard deviations: for each parameter a tensor (K, numel)."""

    names: list[str]
    shapes: list[torch.Size]
    steps_KP: list[Tensor]
    num_batches: int

    @property
    def deviation(self) -> float:
        """Root mean square of the noise."""
        squares = sum(float(noise.square().sum()) for noise in self.steps_KP)
        return math.sqrt(squares / sum(noise.numel() for noise in self.steps_KP))


@dataclass
class _Tests:
    """The tests of one check: their number, and the least likely result with its description."""

    count: int = 0
    least: float = 1.0
    said: str = ""

    def add(self, chance: float, said: str) -> None:
        self.count += 1
        if chance < self.least or not self.said:
            self.least, self.said = chance, said

    def add_correlation(self, one: Tensor, other: Tensor, said: str) -> None:
        norms = float(one.norm() * other.norm())
        if norms == 0:
            return  # no noise at all, which `_deviation` reports
        r = max(-1.0, min(1.0, float(one @ other) / norms))
        self.add(chance_of_correlation(r, len(one)), f"{said} {r:.3g}")

    def check(self, name: str, right: str) -> VerifyCheck:
        chance = min(1.0, self.least * self.count * _NUM_CHECKS)
        passed = chance >= FALSE_ALARM_RATE
        tests = f"{self.count:,} test{'s' if self.count != 1 else ''}"
        said = f"{right}; {tests}" if passed else f"{self.said} (a chance of {chance:.0e} in {tests})"
        return VerifyCheck(name, PASS if passed else FAIL, said, chance=chance)


def measure_noise(case: Case, num_batches: int) -> Noise:
    """Return the noise of `NUM_STEPS` steps of so many physical batches each, as the run computes."""
    way, norm = case.way, case.max_grad_norm
    assert norm is not None, "only of private trainers"
    batches = case.moved(way)[:num_batches]
    same: dict[str, Any] = {"accumulation_steps": num_batches, "lr": 0.0}
    quiet = case.trainer(way, **same)
    without = [gradient.clone() for gradient in case.gradients(quiet, way, batches)]
    multiplier = case.noise_multiplier
    noisy = case.trainer(way, noise_multiplier=multiplier, **same)
    # From the requested settings: a trainer's own are on trial.
    deviation = noisy.noise_deviation(multiplier, norm, case.config.batch_size)
    deviation /= case.batch_size * num_batches
    steps = []
    for _ in range(NUM_STEPS):
        gradients = case.gradients(noisy, way, batches)
        steps.append([((g - w) / deviation).flatten() for g, w in zip(gradients, without, strict=True)])
    stacked = [torch.stack(noises).double().cpu() for noises in zip(*steps, strict=True)]
    return Noise(case.names, [g.shape for g in without], stacked, num_batches)


def checks(case: Case, found: VerifyResult) -> Iterator[VerifyCheck]:
    """Check one physical batch and several. Counts the tests in `found`, and leaves the worst deviation."""
    for num_batches in (1, case.num_batches):
        noise = measure_noise(case, num_batches)
        suffix = ACCUMULATED if num_batches > 1 else ""
        tested = [
            (_deviation(noise), "noise_deviation", f"{noise.deviation:.4f} times what is asked for"),
            (_coordinates(noise), "noise_coordinates", "every coordinate has its own noise"),
            (_steps(noise), "noise_steps", "no correlation"),
            (_parameters(noise), "noise_parameters", "no correlation"),
        ]
        yield from [tests.check(name + suffix, right) for tests, name, right in tested]
        found.num_noise_tests += sum(tests.count for tests, _, _ in tested)
        if found.noise_deviation is None or abs(noise.deviation - 1) > abs(found.noise_deviation - 1):
            found.noise_deviation = noise.deviation


def _deviation(noise: Noise) -> _Tests:
    """Test deviation and mean of every parameter, and the deviation of each step over all parameters."""
    tests = _Tests()
    whole = f"the noise has {noise.deviation:.3g} times the standard deviation asked for"
    whole += _hint(noise.deviation, noise.num_batches)
    for step in range(NUM_STEPS):
        squares = sum(float(n[step].square().sum()) for n in noise.steps_KP)
        count = sum(n[step].numel() for n in noise.steps_KP)
        tests.add(chance_of_deviation(squares, count), whole)
    for name, n in zip(noise.names, noise.steps_KP, strict=True):
        squares = float(n.square().sum())
        ratio = math.sqrt(squares / n.numel())
        of_one = f"the noise in {name} has {ratio:.3g} times the standard deviation asked for"
        # Off by as much as all parameters together, up to chance.
        is_alike = chance_of_deviation(squares / max(noise.deviation, _NEARLY) ** 2, n.numel())
        said = whole if noise.deviation < _NEARLY or is_alike > FALSE_ALARM_RATE else of_one
        tests.add(chance_of_deviation(squares, n.numel()), said)
        tests.add(chance_of_mean(float(n.sum()), n.numel()), f"the noise in {name} has a mean that is not 0")
    return tests


def _hint(deviation: float, num_batches: int) -> str:
    known = {
        math.sqrt(2): "as if it were added twice",
        float(num_batches): "as if it were divided by the size of a physical batch, not of the logical one",
        1 / num_batches: "as if it were divided once too often by the number of physical batches",
        math.sqrt(num_batches): "as if it were added for each physical batch",
    }
    if deviation < _NEARLY:
        return ": there is none"
    if abs(deviation - 1) > _NEARLY:
        for ratio, hint in known.items():
            if abs(deviation / ratio - 1) < _NEARLY and ratio != 1:
                return f", {hint}"
    return ""


def _coordinates(noise: Noise) -> _Tests:
    """Test the variance of each coordinate, the normality of all, and correlations within parameters."""
    tests = _Tests()
    squares_P = torch.cat([n.square().sum(0) for n in noise.steps_KP])
    tests.add(
        chance_of_extremes(squares_P, NUM_STEPS),
        f"a coordinate's noise is between {math.sqrt(float(squares_P.min()) / NUM_STEPS):.3g} and "
        f"{math.sqrt(float(squares_P.max()) / NUM_STEPS):.3g} times the standard deviation asked for",
    )
    half = torch.tensor(NUM_STEPS / 2, dtype=torch.float64)
    quantiles = torch.special.gammainc(half, squares_P / 2)
    tests.add(chance_of_distribution(quantiles), "the noise differs between coordinates")
    values = torch.cat([n.flatten() for n in noise.steps_KP])
    tests.add(chance_of_distribution(torch.special.ndtr(values)), "the noise is not normally distributed")
    for name, shape, n in zip(noise.names, noise.shapes, noise.steps_KP, strict=True):
        row = n.shape[1] // shape[0] if shape else 1
        for distance in sorted({1, 2, row, n.shape[1] // 2}):
            if 0 < distance <= n.shape[1] // 2:
                pairs = n[:, : n.shape[1] // (2 * distance) * 2 * distance].reshape(-1, 2, distance)
                said = f"coordinates of {name} that are {distance} apart have noise with a correlation of"
                tests.add_correlation(pairs[:, 0].flatten(), pairs[:, 1].flatten(), said)
    return tests


def _steps(noise: Noise) -> _Tests:
    """Test that whole steps are independent, and each parameter between steps."""
    tests = _Tests()
    whole = torch.cat(noise.steps_KP, 1)
    for one in range(NUM_STEPS):
        for other in range(one):
            said = f"steps {other + 1} and {one + 1} have noise with a correlation of"
            tests.add_correlation(whole[one], whole[other], said)
    for name, n in zip(noise.names, noise.steps_KP, strict=True):
        for step in range(1, NUM_STEPS):
            said = f"{name} has in steps {step} and {step + 1} noise with a correlation of"
            tests.add_correlation(n[step - 1], n[step], said)
    return tests


def _parameters(noise: Noise) -> _Tests:
    """Test that the noise of no two parameters begins alike, in the same step or in others."""
    tests = _Tests()
    rows = [(i, step, n[step, :_PREFIX]) for i, n in enumerate(noise.steps_KP) for step in range(NUM_STEPS)]
    lengths = torch.tensor([len(row) for _, _, row in rows])
    padded = torch.zeros(len(rows), int(lengths.max()), dtype=torch.float64)
    for at, (_, _, row) in enumerate(rows):
        padded[at, : len(row)] = row
    dots = padded @ padded.T
    sums = padded.square().cumsum(1)
    shorter = torch.minimum(lengths[:, None], lengths)
    own = sums.gather(1, shorter - 1)  # each row's square over a pair's shared length
    correlations = (dots / (own * own.T).sqrt().clamp(min=1e-300)).clamp(-1, 1)
    of = torch.tensor([i for i, _, _ in rows])
    pairs = torch.triu(of[:, None] != of, 1)
    tests.count = int(pairs.sum())
    if not tests.count:
        return tests
    logs = (shorter - 1) / 2 * torch.log1p(-correlations.square().clamp(max=1 - 1e-16))
    worst = int(torch.where(pairs, logs, torch.inf).argmin())
    one, other = rows[worst // len(rows)], rows[worst % len(rows)]
    tests.least = math.exp(float(logs.flatten()[worst]))
    tests.said = (
        f"{noise.names[one[0]]} in step {one[1] + 1} and {noise.names[other[0]]} in step {other[1] + 1} have "
        f"noise with a correlation of {float(correlations.flatten()[worst]):.3g}"
    )
    return tests


# The functions below return p-values of independent standard normal values.


def chance_of_deviation(sum_of_squares: float, count: int) -> float:
    """Return the p-value of this sum of squares: chi-squared with `count` degrees of freedom."""
    half, x = torch.tensor([count / 2, sum_of_squares / 2], dtype=torch.float64)
    less = float(torch.special.gammainc(half, x))
    return min(1.0, 2 * min(less, float(torch.special.gammaincc(half, x))))


def chance_of_mean(total: float, count: int) -> float:
    """Return the p-value of this sum of values."""
    return math.erfc(abs(total) / math.sqrt(2 * count))


def chance_of_extremes(squares_P: Tensor, count: int) -> float:
    """Return the p-value of the smallest and the largest of P sums of `count` squares each."""
    of_one = [chance_of_deviation(float(squares), count) for squares in (squares_P.min(), squares_P.max())]
    return min(1.0, min(of_one) * len(squares_P))


def chance_of_correlation(r: float, count: int) -> float:
    """Bound the p-value of a correlation, means not subtracted: twice the bound of a spherical cap."""
    return math.exp((count - 1) / 2 * math.log1p(-min(r * r, 1 - 1e-16)))


def chance_of_distribution(quantiles: Tensor) -> float:
    """Bound the p-value of uniform quantiles (Dvoretzky-Kiefer-Wolfowitz, Massart's constant)."""
    ordered = quantiles.flatten().double().sort().values
    count = len(ordered)
    steps = torch.arange(count + 1, dtype=torch.float64) / count
    distance = float(torch.maximum((steps[1:] - ordered).max(), (ordered - steps[:-1]).max()))
    return min(1.0, 2 * math.exp(-2 * count * distance**2))
