"""Noise added in place: its deviation, every number once, nothing twice."""

import pytest
import torch

from dpprof.measure.passes.ledger import Ledger
from dpprof.measure.trainers.per_sample.noise import add_noise

SHAPES = [(300, 700), (5,), (1, 3, 3), (140_000,), (131_072,), (2,)]


def test_every_number_gets_its_own() -> None:
    torch.manual_seed(0)
    gradients = [torch.zeros(shape, dtype=torch.float64) for shape in SHAPES]
    add_noise(gradients, 2.5, "cpu")
    drawn = torch.cat([g.flatten() for g in gradients])
    assert drawn.unique().numel() == drawn.numel()
    assert drawn.std().item() == pytest.approx(2.5, rel=0.01)
    assert abs(drawn.mean().item()) < 5 * 2.5 / drawn.numel() ** 0.5


def test_it_is_added() -> None:
    gradients = [torch.full((50_000,), 7.0), torch.full((3,), -1.0, dtype=torch.float64)]
    add_noise(gradients, 0.1, "cpu")
    assert gradients[0].mean().item() == pytest.approx(7.0, abs=0.01)
    assert (gradients[1] + 1).abs().max().item() < 1


def test_gradients_that_are_not_contiguous() -> None:
    gradient = torch.zeros(400, 300).T
    add_noise([gradient, torch.zeros(2)], 1.0, "cpu")
    assert gradient.std().item() == pytest.approx(1.0, rel=0.02)


def test_without_noise_nothing_is_drawn() -> None:
    state = torch.get_rng_state()
    gradient = torch.ones(10)
    add_noise([gradient], 0.0, "cpu")
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(gradient, torch.ones(10))


@pytest.mark.parametrize(("device_type", "draws"), [("cpu", 4), ("cuda", 1), ("another", 4)])
def test_the_buffer_is_that_of_the_device_that_tensors_stand_for(device_type: str, draws: int) -> None:
    with Ledger("cpu") as ledger, ledger.counting():
        add_noise([torch.zeros(2**18), torch.zeros(2**18)], 1.0, device_type)
        (row,) = [row for row in ledger.take_traffic() if row.name == "aten::normal_"]
    assert row.calls == draws
