"""`verify` passes right trainers, and finds planted faults: each by the check that is about it."""

import dataclasses

import example_faulty_trainers as faulty
import pytest
import torch

from dpprof.config.experiment import ExperimentConfig
from dpprof.figures.gradient_verdict import CANNOT_TELL, FAIL, PASS
from dpprof.figures.verify_verdict import WARNING, having, judge, least_chance
from dpprof.measure.trainers.opacus.dpsgd import DPSGDTrainer
from dpprof.measure.verify import verify
from dpprof.record.verify import VerifyResult
from dpprof.vocabulary.trainers import DEFAULT_TRAINERS, TRAINERS
from dpprof.vocabulary.verify_checks import CHECKS, FALSE_ALARM_RATE

MLP = ExperimentConfig(trainer="DPSGDTrainer", workload="example_workloads:mlp", batch_size=4).resolve(
    cuda_available=False
)
OWN = ("DPBookKeepingTrainer", "DPMixedGhostTrainer")


def failed(found: VerifyResult) -> dict[str, str]:
    return {check.name: check.said for check in having(found.checks, FAIL)}


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("trainer", DEFAULT_TRAINERS)
def test_right_trainers_pass(trainer: str, precision: str) -> None:
    found = verify(dataclasses.replace(MLP, trainer=trainer, precision=precision))
    assert failed(found) == {}
    assert judge(found).word == PASS
    names = {check.name for check in found.checks}
    assert names <= CHECKS.keys()
    way = "bf16" if precision == "bf16" else "float32"
    assert {"gradient_float64_accumulated", f"gradient_{way}", "weights_moved", "weights_frozen"} <= names
    if TRAINERS[trainer].is_private:
        assert {name for name in CHECKS if name.startswith(("noise", "sensitivity"))} <= names
        assert found.noise_deviation == pytest.approx(1, abs=0.05)
        chance = least_chance(found)
        assert chance is not None
        assert chance > FALSE_ALARM_RATE
    else:
        assert not any(name.startswith(("noise", "sensitivity")) for name in names)


@pytest.mark.parametrize(
    ("trainer", "check", "says"),
    [
        (faulty.WrongNorm, "gradient_float64", "clipped by another norm than that of their whole gradient"),
        (faulty.NoNoise, "noise_deviation", "0 times the standard deviation asked for: there is none"),
        (faulty.HalfTheNoise, "noise_deviation", "times the standard deviation asked for"),
        (faulty.NoiseTwice, "noise_deviation", "as if it were added twice"),
        (faulty.NoiseForEachBatch, "noise_deviation_accumulated", "as if it were added"),
        (faulty.NoiseOfPhysicalBatch, "noise_deviation_accumulated", "the size of a physical batch"),
        (faulty.DropsALayer, "gradient_float64", "2.bias gets no gradient"),
        (faulty.ClipsTheSum, "gradient_float64", "the sum is clipped, not each sample's gradient"),
        (faulty.LeaksOneSample, "gradient_float64", "the gradient of sample 1 is in the sum unclipped"),
        (faulty.SameNoise, "noise_steps", "noise with a correlation of 1"),
        (faulty.SameNoiseForParameters, "noise_parameters", "noise with a correlation of 1"),
        (faulty.NoisePerRow, "noise_coordinates", "1 apart have noise with a correlation of 1"),
        (faulty.KeepsTheLastStep, "gradient_next_step", "gradient"),
        (faulty.MovesTheFrozen, "weights_frozen", "0.weight is frozen, and has moved"),
        (faulty.StandsStill, "weights_moved", "did not move"),
    ],
)
def test_a_planted_fault_is_found_and_named(
    trainer: type[DPSGDTrainer], check: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = dataclasses.replace(TRAINERS["DPSGDTrainer"], target=f"{trainer.__module__}:{trainer.__name__}")
    monkeypatch.setitem(TRAINERS, "DPSGDTrainer", info)
    found = verify(MLP)
    assert judge(found).word == FAIL
    assert check in failed(found), failed(found)
    assert says in failed(found)[check]


@pytest.mark.parametrize("trainer", [faulty.ClipsTheSum, faulty.LeaksOneSample, faulty.WrongNorm])
def test_what_is_not_clipped_breaks_the_bound(
    trainer: type[DPSGDTrainer], monkeypatch: pytest.MonkeyPatch
) -> None:
    info = dataclasses.replace(TRAINERS["DPSGDTrainer"], target=f"{trainer.__module__}:{trainer.__name__}")
    monkeypatch.setitem(TRAINERS, "DPSGDTrainer", info)
    assert "sensitivity_huge" in failed(verify(MLP))


@pytest.mark.parametrize("trainer", [name for name in DEFAULT_TRAINERS if TRAINERS[name].is_private])
def test_a_nan_is_refused_or_told(trainer: str) -> None:
    """Opacus sums a NaN, and so loses every weight; dpprof's own trainers refuse it."""
    found = verify(dataclasses.replace(MLP, trainer=trainer))
    warned = {check.name for check in having(found.checks, WARNING)}
    assert ({"sensitivity_nan", "sensitivity_infinity"} <= warned) == (trainer not in OWN)
    assert ("sensitivity_nan" in judge(found).reason) == (trainer not in OWN)
    (nan,) = (check for check in found.checks if check.name == "sensitivity_nan")
    told = "is refused: ValueError" if trainer in OWN else "makes 4 of 4 weight tensors NaN"
    assert told in nan.said


@pytest.mark.parametrize("clipping", ["layer_wise", "automatic"])
@pytest.mark.parametrize("trainer", OWN)
def test_other_ways_to_clip_pass(trainer: str, clipping: str) -> None:
    config = dataclasses.replace(MLP, trainer=trainer, options={"norm": "mixed", "clipping": clipping})
    assert failed(verify(config)) == {}


def test_a_model_without_one_gradient_cannot_be_verified() -> None:
    found = verify(dataclasses.replace(MLP, workload="example_checked:with_noisy_gradients"))
    assert judge(found).word == CANNOT_TELL
    mixing = judge(verify(dataclasses.replace(MLP, workload="example_checked:mixing_samples")))
    assert (mixing.word, "not differentially private" in mixing.reason) == (FAIL, True)


def test_the_random_numbers_of_a_run_are_its_own() -> None:
    """Two seeds have different noise."""
    one, other = (verify(dataclasses.replace(MLP, seed=seed)) for seed in (1, 2))
    assert one.noise_deviation != other.noise_deviation
    assert torch.tensor([one.noise_deviation, other.noise_deviation]).sub(1).abs().max() < 0.05
