"""Bytes moved and operations of whole training steps, held against arithmetic."""

import pytest
from tiny_ledgers import BUILT_IN, FLAT, modules, sizes, tiny
from torch import nn

from dpprof.record.ledger import TrafficRow


def totals(traffic: list[TrafficRow], phase: str) -> tuple[int, int]:
    rows = [row for row in traffic if row.phase == phase]
    return sum(row.read for row in rows), sum(row.written for row in rows)


@pytest.mark.parametrize("trainer", BUILT_IN)
def test_traffic_of_noise_and_optimizer_by_arithmetic(trainer: str) -> None:
    _, traffic = tiny(trainer)
    weights = sum(sizes())
    # SGD: read the weight and the gradient, write the weight.
    assert totals(traffic, "optimizer_step") == (2 * weights, weights)
    if trainer != "StandardTrainer":
        # Zeros, a normal tensor, their sum with the gradient, and a division in place.
        assert totals(traffic, "noise") == (3 * weights, 4 * weights)


def test_flat_clipping_reads_all_per_sample_gradients_twice() -> None:
    _, traffic = tiny(FLAT)
    read, written = totals(traffic, "clip")
    weights = sum(sizes())
    assert read == pytest.approx(2 * 4 * weights, rel=0.01)
    assert written == pytest.approx(weights, rel=0.01)


def flops(traffic: list[TrafficRow], phase: str) -> int:
    return sum(row.flops for row in traffic if row.phase == phase)


@pytest.mark.parametrize("trainer", BUILT_IN)
def test_flops_by_arithmetic(trainer: str) -> None:
    _, traffic = tiny(trainer)
    tokens, length, width = 4 * 48, 48, 64
    products = sum(m.weight.numel() for m in modules().values() if isinstance(m, nn.Linear))
    attention = 2 * 2 * tokens * length * width  # per block: scores, and their product with the values
    assert flops(traffic, "forward") == 2 * tokens * products + 2 * attention
    backward = 2 * 2 * tokens * products + 2 * attention * 5 // 2
    if trainer == "StandardTrainer":
        assert flops(traffic, "backward") == backward
    elif trainer == FLAT:
        # The per-sample gradients cost as much as the ordinary ones, which are made as well.
        assert flops(traffic, "backward") == backward + 2 * tokens * products
    else:
        assert flops(traffic, "backward_weighted") == backward
