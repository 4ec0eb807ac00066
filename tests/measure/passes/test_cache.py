"""What a cache keeps from memory, and the traffic that the ledger counts."""

import random
from collections import OrderedDict

import pytest
import torch
from tiny_ledgers import BUILT_IN, FLAT, modules, sizes, tiny
from torch import nn

from dpprof.measure.passes.ledger import Ledger
from dpprof.measure.passes.storages import Life
from dpprof.measure.passes.traffic import Cache
from dpprof.record.ledger import TrafficRow


def life(num_bytes: int) -> Life:
    return Life(num_bytes, (num_bytes,), "uint8", "", None, "")


def filled(cache: Cache, num_bytes: int) -> None:
    """Read what was never seen, so that nothing else is held."""
    cache.to_memory({(other := life(num_bytes)): num_bytes}, {}, num_bytes)
    assert cache.to_memory({other: num_bytes}, {}, num_bytes) == 0


def test_what_lives_on_is_written_when_others_drive_it_out() -> None:
    cache, kept = Cache(100), life(40)
    filled(cache, 100)
    assert cache.to_memory({kept: 40}, {kept: 40}, 0) == 0
    assert cache.to_memory({(other := life(90)): 90}, {}, 90) == 90 + 30
    assert cache.to_memory({other: 90}, {}, 90) == 0
    assert cache.to_memory({kept: 40}, {}, 40) == 30


def test_of_what_is_larger_than_the_cache_only_as_much_as_it_holds_is_left_out() -> None:
    cache, large = Cache(100), life(250)
    filled(cache, 100)
    assert cache.to_memory({large: 250}, {large: 250}, 0) == 150
    assert cache.to_memory({large: 250}, {}, 250) == 150


def test_it_is_a_cache_that_keeps_what_was_last_used() -> None:
    """Against a cache of single bytes, on storages of one byte, of which some die."""
    chance, size = random.Random(5), 20
    cache, lives = Cache(size), [life(1) for _ in range(60)]
    held: OrderedDict[Life, bool] = OrderedDict()
    expected, found = -size, 0  # those that it may have held before
    for _ in range(5000):
        one, is_written = chance.choice(lives), chance.random() < 0.4
        expected += one not in held and not is_written
        held[one] = held.pop(one, False) or is_written
        if len(held) > size:
            for dead in [each for each in held if not each.alive]:
                del held[dead]
        if len(held) > size:
            expected += held.popitem(last=False)[1]
        found += cache.to_memory({one: 1}, {one: 1} if is_written else {}, 0 if is_written else 1)
        if chance.random() < 0.05:
            place = chance.randrange(len(lives))
            lives[place].alive = False
            lives[place] = life(1)
    assert found == expected > 0


def rows_of(l2_bytes: int) -> dict[str, TrafficRow]:
    """A product of short numbers in blocks, one of fp32, and a sum over what is large."""
    left, right, large = torch.ones(64, 64), torch.ones(64, 64), torch.ones(2**16)
    with Ledger("cpu", l2_bytes) as ledger, ledger.counting():
        large.sum()
        for _ in range(4):
            (left.bfloat16() @ right.bfloat16()).neg_()
        left @ right
        large.exp()
    return {row.name: row for row in ledger.take_traffic()}


def test_the_ledger_leaves_what_moves_as_it_is_and_tells_what_is_cached() -> None:
    plain, with_cache = rows_of(0), rows_of(2**17)
    assert {name: (row.read, row.written) for name, row in plain.items()} == {
        name: (row.read, row.written) for name, row in with_cache.items()
    }
    assert all(row.cached == 0 for row in plain.values())
    assert with_cache["aten::neg_"].cached == with_cache["aten::neg_"].read * 2
    large = with_cache["aten::exp"]
    assert 0 < large.read + large.written - large.cached < large.read + large.written
    assert with_cache["aten::mm"].fp32_flops == 2 * 64**3
    assert with_cache["aten::mm"].flops == 5 * 2 * 64**3


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
