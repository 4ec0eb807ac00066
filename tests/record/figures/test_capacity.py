import dataclasses

import pytest
from example_config import changed
from example_costs import ON_CPU, ON_H100, ledger, resolved, row

from dpprof.config.devices import DEVICES
from dpprof.record.figures import capacity
from dpprof.record.figures.capacity import round_batch
from dpprof.record.ledger import Doubt, Segments

MIB, GIB = 2**20, 2**30
ATTENTION = "aten::_scaled_dot_product_flash_attention_for_cpu"


def test_on_a_gpu_every_addition_has_a_name() -> None:
    config, found = resolved(ON_H100), ledger(row("forward"))
    assert capacity.needed_bytes(config, found) == (100 + 64 + 512) * MIB + 3584
    found.segments = Segments(reserved=300 * MIB, least=190 * MIB, expandable=180 * MIB)
    assert capacity.needed_bytes(config, found) == (190 + 512) * MIB
    assert capacity.saved_by_expandable(found) == 10 * MIB
    on_cpu = resolved(ON_CPU)
    found.from_allocator, found.segments = {}, None
    assert (capacity.needed_bytes(on_cpu, found), capacity.capacity_bytes(on_cpu)) == (100 * MIB, None)


def test_a_memory_given_goes_before_the_targets() -> None:
    config = resolved(ON_H100)
    assert capacity.capacity_bytes(config) == round(DEVICES["H100"].memory_gib * GIB)
    assert capacity.capacity_bytes(changed(config, device_memory_gib=24.0)) == 24 * GIB


@pytest.mark.parametrize(
    ("name", "precision", "words"),
    [
        ("aten::unique_dim", "fp32", ["upper bound", "foreach", "fragmentation"]),
        (ATTENTION, "fp32", ["attention", "foreach", "fragmentation"]),
        (ATTENTION, "bf16", ["attention", "foreach", "fragmentation", "autocast"]),
        ("aten::embedding_dense_backward", "fp32", ["foreach", "fragmentation", "sort"]),
    ],
)
def test_what_an_estimate_rests_on_is_told(name: str, precision: str, words: list[str]) -> None:
    config = dataclasses.replace(resolved(ON_H100), precision=precision)
    found = capacity.assumptions(config, ledger(row("forward", name)))
    assert len(found) == len(words)
    assert all(word in text for word, text in zip(words, found, strict=True))
    (on_cpu,) = capacity.assumptions(resolved(ON_CPU), ledger(row("forward", ATTENTION)))
    assert "in one run of its own on this machine" in on_cpu


@pytest.mark.parametrize(
    ("limit_mib", "doubts", "expected"),
    [
        (100, [], True),
        (99, [], False),
        (150, [30, 20], True),
        (149, [30, 20], None),
        (100, [30, 20], None),
        (99, [30, 20], False),
        (10_000, [30, None], None),
        (99, [None], False),
    ],
)
def test_it_fits_only_with_room_for_what_is_in_doubt(
    limit_mib: int, doubts: list[int | None], expected: bool | None
) -> None:
    config = changed(resolved(ON_CPU), device_memory_gib=limit_mib / 1024)
    found = ledger(row("forward"))
    found.from_allocator = {}
    found.doubts = [Doubt(str(i), "", None if mib is None else mib * MIB) for i, mib in enumerate(doubts)]
    assert capacity.fits(config, found) is expected
    assert capacity.fits(resolved(ON_CPU), found) is None, "held against nothing"


def test_a_round_batch_is_a_little_smaller_than_the_largest() -> None:
    found = {largest: round_batch(largest) for largest in (0, 15, 23, 75, 151, 4228)}
    assert found == {0: 0, 15: 15, 23: 22, 75: 72, 151: 144, 4228: 4224}
    assert all(largest - rounded <= largest / 8 for largest, rounded in found.items())
