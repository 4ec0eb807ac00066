"""`verify` passes right trainers, and finds planted faults by the checks about them, with right chances."""

import dataclasses
from functools import cache

import example_faulty_trainers as faulty
import example_unusual
import pytest
import torch
from covering import product
from example_runs import known, put_in_place
from scipy import stats

from dpprof.config.experiment import ExperimentConfig
from dpprof.measure.trainers.base import TrainerBase
from dpprof.measure.trainers.per_sample.trainer import PerSampleTrainer
from dpprof.measure.verifying import noise
from dpprof.measure.verifying.verification import verify_trainer
from dpprof.record.figures.verdicts import (
    CANNOT_TELL,
    FAIL,
    PASS,
    WARNING,
    having,
    judge_checks,
    least_chance,
)
from dpprof.record.record import VerifyResult
from dpprof.vocabulary.trainers import DEFAULT_TRAINERS, TRAINERS
from dpprof.vocabulary.verify_checks import CHECKS, FALSE_ALARM_RATE

MLP = ExperimentConfig(trainer="DPSGDTrainer", workload="example_workloads:mlp", batch_size=4).resolve(
    cuda_available=False
)
OWN = ("DPBookKeepingTrainer", "DPMixedGhostTrainer")


@cache
def verified(trainer: str, precision: str = "fp32") -> VerifyResult:
    return verify_trainer(dataclasses.replace(MLP, trainer=trainer, precision=precision))


def failed(found: VerifyResult) -> dict[str, str]:
    return {check.name: check.said for check in having(found.checks, FAIL)}


@pytest.mark.parametrize(("trainer", "precision"), product(DEFAULT_TRAINERS, ["fp32", "bf16"]))
def test_right_trainers_pass(trainer: str, precision: str) -> None:
    found = verified(trainer, precision)
    assert failed(found) == {}
    assert judge_checks(found).word == PASS
    names = {check.name for check in found.checks}
    assert names <= CHECKS.keys()
    way = "bf16" if precision == "bf16" else "float32"
    assert {"gradient_float64_accumulated", f"gradient_{way}", "weights_moved", "weights_frozen"} <= names
    if TRAINERS[trainer].is_private:
        assert {name for name in CHECKS if name.startswith(("noise", "sensitivity"))} <= names
        assert found.noise_deviation == pytest.approx(1, abs=0.05)
        assert known(least_chance(found)) > FALSE_ALARM_RATE
    else:
        assert not any(name.startswith(("noise", "sensitivity")) for name in names)


@pytest.mark.parametrize(
    ("trainer", "workload", "check", "says"),
    [
        (faulty.WrongNorm, "mlp", "gradient_float64", "clipped by another norm than that of their whole"),
        (faulty.AddsToTheNorm, "mlp", "gradient_float64", "the clip factors are nearly right. Something"),
        (faulty.NoNoise, "mlp", "noise_deviation", "0 times the standard deviation asked for: there is none"),
        (faulty.HalfTheNoise, "mlp", "noise_deviation", "times the standard deviation asked for"),
        (faulty.NoiseTwice, "mlp", "noise_deviation", "as if it were added twice"),
        (faulty.NoiseForEachBatch, "mlp", "noise_deviation_accumulated", "as if it were added"),
        (faulty.NoiseOfPhysicalBatch, "mlp", "noise_deviation_accumulated", "the size of a physical batch"),
        (faulty.DropsALayer, "mlp", "gradient_float64", "2.bias gets no gradient"),
        (faulty.ClipsTheSum, "mlp", "gradient_float64", "the sum is clipped, not each sample's gradient"),
        (faulty.LeaksOneSample, "mlp", "gradient_float64", "gradient of sample 1 is in the sum unclipped"),
        (faulty.SameNoise, "mlp", "noise_steps", "noise with a correlation of 1"),
        (faulty.SameNoiseForParameters, "mlp", "noise_parameters", "noise with a correlation of 1"),
        (faulty.NoisePerRow, "mlp", "noise_coordinates", "1 apart have noise with a correlation of 1"),
        (faulty.KeepsTheLastStep, "mlp", "gradient_next_step", "gradient"),
        (faulty.MovesTheFrozen, "mlp", "weights_frozen", "0.weight is frozen, and has moved"),
        (faulty.StandsStill, "mlp", "weights_moved", "did not move"),
        (faulty.ComplexNoise, "spectral", "noise_deviation", "the noise in 1.weight has 0.7"),
        (faulty.OwnComplexNoise, "spectral", "noise_deviation", "the noise in 1.weight has 0.7"),
        (faulty.NoiseInTheRealPart, "complex_linear", "noise_coordinates", "noise is between 0 and"),
        (faulty.LosesComputedWeights, "transposed", "gradient_float64", "1.inner.weight_v get no"),
        (faulty.LosesComputedWeights, "pruned_bilinear", "gradient_float64", "1.inner.weight_orig gets no"),
        (faulty.LosesTheTiedHead, "tied", "gradient_float64", "the gradient is wrong in embedding.weight"),
        (faulty.TakesRowsForSamples, "relative", "gradient_as_many_samples", "the gradient is wrong in"),
        (faulty.TakesRowsForSamplesTwice, "relative", "gradient_as_many_samples", "the gradient is wrong in"),
    ],
)
def test_a_planted_fault_is_found_and_named(
    trainer: type[TrainerBase], workload: str, check: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    replaced = "DPBookKeepingTrainer" if issubclass(trainer, PerSampleTrainer) else "DPSGDTrainer"
    put_in_place(monkeypatch, replaced, trainer)
    module = "example_workloads" if workload == "mlp" else "example_unusual"
    found = verify_trainer(dataclasses.replace(MLP, trainer=replaced, workload=f"{module}:{workload}"))
    assert judge_checks(found).word == FAIL
    assert check in failed(found), failed(found)
    assert says in failed(found)[check]
    if trainer in (faulty.ClipsTheSum, faulty.LeaksOneSample, faulty.WrongNorm):
        assert "sensitivity_huge" in failed(found), "what is not clipped breaks the bound"


@pytest.mark.parametrize(
    ("trainer", "workload", "batch_size"),
    product(OWN, ["spectral", "complex_linear", "relative"], [4, example_unusual.LENGTH]),
)
def test_right_trainers_pass_on_unusual_models(trainer: str, workload: str, batch_size: int) -> None:
    config = dataclasses.replace(MLP, workload=f"example_unusual:{workload}", batch_size=batch_size)
    found = verify_trainer(dataclasses.replace(config, trainer=trainer))
    assert failed(found) == {}
    shared = {"gradient_as_many_samples"} if (workload, batch_size) == ("relative", 4) else set()
    assert shared == {check.name for check in found.checks} & {"gradient_as_many_samples"}


@pytest.mark.parametrize("trainer", [name for name in DEFAULT_TRAINERS if TRAINERS[name].is_private])
def test_a_nan_is_refused_or_told(trainer: str) -> None:
    """Opacus sums a NaN, and so loses every weight; dpprof's own trainers refuse it."""
    found = verified(trainer)
    warned = {check.name for check in having(found.checks, WARNING)}
    assert ({"sensitivity_nan", "sensitivity_infinity"} <= warned) == (trainer not in OWN)
    assert ("sensitivity_nan" in judge_checks(found).reason) == (trainer not in OWN)
    (nan,) = (check for check in found.checks if check.name == "sensitivity_nan")
    told = "is refused: ValueError" if trainer in OWN else "makes 4 of 4 weight tensors NaN"
    assert told in nan.said


@pytest.mark.parametrize(("trainer", "clipping"), product(OWN, ["layer_wise", "automatic"]))
def test_other_ways_to_clip_pass(trainer: str, clipping: str) -> None:
    config = dataclasses.replace(MLP, trainer=trainer, options={"norm": "mixed", "clipping": clipping})
    assert failed(verify_trainer(config)) == {}


def test_a_model_without_one_gradient_cannot_be_verified() -> None:
    found = verify_trainer(dataclasses.replace(MLP, workload="example_checked:with_noisy_gradients"))
    assert judge_checks(found).word == CANNOT_TELL
    mixing = judge_checks(verify_trainer(dataclasses.replace(MLP, workload="example_checked:mixing_samples")))
    assert (mixing.word, "not differentially private" in mixing.reason) == (FAIL, True)


def test_the_random_numbers_of_a_run_are_its_own() -> None:
    """Two seeds have different noise."""
    one, other = (verify_trainer(dataclasses.replace(MLP, seed=seed)) for seed in (1, 2))
    assert one.noise_deviation != other.noise_deviation
    assert torch.tensor([one.noise_deviation, other.noise_deviation]).sub(1).abs().max() < 0.05


@pytest.mark.parametrize("count", [1, 4, 100, 10**6])
@pytest.mark.parametrize("ratio", [0.2, 0.9, 1.001, 2.0])
def test_the_chance_of_a_deviation_is_that_of_chi_squared(count: int, ratio: float) -> None:
    squares = count * ratio
    exact = min(1.0, 2 * min(stats.chi2.cdf(squares, count), stats.chi2.sf(squares, count)))
    assert noise.chance_of_deviation(squares, count) == pytest.approx(exact, rel=1e-6, abs=1e-250)


@pytest.mark.parametrize("count", [3, 10, 1000])
@pytest.mark.parametrize("r", [0.05, 0.3, 0.9])
def test_the_chance_of_a_correlation_is_a_bound_of_the_exact_one(count: int, r: float) -> None:
    """The square of the correlation of two normal lists about 0 is beta distributed."""
    exact = float(stats.beta.sf(r * r, 0.5, (count - 1) / 2))
    assert exact <= noise.chance_of_correlation(r, count) <= max(10 * exact, 1e-12) * (1 + r * count**0.5)


def test_equal_lists_are_impossible_and_one_number_tells_nothing() -> None:
    assert noise.chance_of_correlation(1.0, 100) < 1e-300
    assert noise.chance_of_correlation(1.0, 1) == 1


def test_the_other_chances_against_exact_ones() -> None:
    assert noise.chance_of_mean(30.0, 100) == pytest.approx(2 * stats.norm.sf(3))
    uniform = torch.linspace(0, 1, 1001, dtype=torch.float64)
    assert noise.chance_of_distribution(uniform) > 0.99
    assert noise.chance_of_distribution(uniform**2) < 1e-50
    extremes = torch.tensor([4.0, 0.0, 3.0])
    assert noise.chance_of_extremes(extremes, 4) == 0
    assert noise.chance_of_extremes(torch.full((1000,), 4.0), 4) == 1


def test_right_noise_seldom_looks_odd() -> None:
    """Of 2,000 draws at most about a share of p has a chance of p or less."""
    generator = torch.Generator().manual_seed(3)
    drawn = torch.randn(2000, 2, 50, generator=generator, dtype=torch.float64)
    found = {
        "deviation": [noise.chance_of_deviation(float(x.square().sum()), 100) for x in drawn],
        "mean": [noise.chance_of_mean(float(x.sum()), 100) for x in drawn],
        "correlation": [
            noise.chance_of_correlation(float(x[0] @ x[1] / x[0].norm() / x[1].norm()), 50) for x in drawn
        ],
        "distribution": [noise.chance_of_distribution(torch.special.ndtr(x)) for x in drawn],
    }
    for name, values in found.items():
        share = sum(value <= 0.05 for value in values) / len(values)
        assert share <= 0.065, name
