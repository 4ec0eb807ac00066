"""The cost of a step by two estimates, held against a third between them."""

from pathlib import Path

import pytest
from example_runs import known, measured

from dpprof.config.estimating import EstimatingConfig
from dpprof.config.flat import parse_experiment
from dpprof.record.figures.capacity import needed_bytes
from dpprof.record.figures.cost import Estimated, StepCost
from dpprof.record.figures.step import LogicalStep
from dpprof.vocabulary.trainers import TRAINERS

ALL = [name for name, info in TRAINERS.items() if info.is_default]


def estimated(tmp_path: Path, trainer: str, batch: int, **settings: int | str) -> Estimated:
    values = {"model_size": "mini", "seq_len": 64, "target": "H100", "device": "cuda", "savings": False}
    values |= {"trainer": trainer, "batch_size": batch, **settings}
    config = parse_experiment(values, EstimatingConfig).resolve(cuda_available=True)
    record = measured(tmp_path / f"{batch}_{config.accumulation_steps}", config)
    return config, known(record.ledger)


@pytest.mark.parametrize("trainer", ALL)
def test_a_batch_costs_what_a_smaller_and_a_larger_one_tell(trainer: str, tmp_path: Path) -> None:
    """Tensors to the byte, what the device needs within 2 %, FLOPs exactly."""
    cost = StepCost.of([estimated(tmp_path, trainer, batch) for batch in (32, 128)])
    config, ledger = estimated(tmp_path, trainer, 64)
    found, truth = cost.logical(64), LogicalStep.of(config, ledger)
    assert max(peak(64) for peak in cost.peaks.values()) == ledger.peak
    assert found.needed == pytest.approx(needed_bytes(config, ledger), rel=0.02)
    assert found.peak_phase == ledger.peak_phase
    assert found.flops == truth.flops
    assert found.moved == pytest.approx(truth.moved, rel=1e-3)
    assert found.seconds == pytest.approx(truth.seconds, rel=0.1)


def test_more_physical_batches_cost_what_two_and_three_tell(tmp_path: Path) -> None:
    def steps(number: int) -> Estimated:
        return estimated(tmp_path, "DPSGDTrainer", 4, model_size="tiny", accumulation_steps=number)

    cost = StepCost.of([steps(number) for number in (2, 3)])
    config, ledger = steps(6)
    found, truth = cost.logical(4, 6), LogicalStep.of(config, ledger)
    assert (found.flops, found.peak_phase) == (truth.flops, truth.peak_phase)
    assert found.needed == pytest.approx(truth.needed, rel=0.02)
    assert found.seconds == pytest.approx(truth.seconds, rel=0.05)
