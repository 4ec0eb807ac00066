"""The costs of norm forms by arithmetic, and where the cheapest one changes."""

import pytest

from dpprof.config.devices import CPU_BALANCE, DEVICES
from dpprof.vocabulary.clipping import BLOCKED, EXPLICIT, GRAM, MIXED
from dpprof.vocabulary.norm_forms import BLOCK_BYTES, Balance, LayerShape, chosen, norm_costs

SMALL = LayerShape(3, 1, 10, 7, 5)


def test_costs_by_arithmetic() -> None:
    costs = norm_costs(SMALL, 4, CPU_BALANCE, keeps=True)
    assert costs[GRAM].flops == 2 * 3 * 100 * 12
    assert costs[GRAM].num_bytes == 2 * 3 * 100 * 4
    assert costs[GRAM].sum_flops == 2 * 3 * 10 * 35
    assert costs[EXPLICIT].flops == 2 * 3 * 10 * 35
    assert costs[EXPLICIT].sum_flops == 2 * 3 * 35
    assert costs[EXPLICIT].num_bytes == 3 * 35 * 4
    assert costs[EXPLICIT].is_kept
    halved = norm_costs(SMALL, 2, CPU_BALANCE, keeps=True)
    assert halved[GRAM].num_bytes == costs[GRAM].num_bytes, "four bytes a number under bf16 too"
    dropped = norm_costs(SMALL, 4, CPU_BALANCE, keeps=False)[EXPLICIT]
    assert dropped.sum_flops == dropped.flops
    assert not dropped.is_kept


@pytest.mark.parametrize(
    ("positions", "blocks"), [(5, [5]), (100, [64, 36]), (600, [150] * 4), (5000, [512] * 9 + [392])]
)
def test_the_strips_of_gram_matrices_up_to_the_diagonal(positions: int, blocks: list[int]) -> None:
    shape = LayerShape(3, 2, positions, 7, 9)
    pairs = sum(blocks[i] * blocks[j] for i in range(len(blocks)) for j in range(i + 1))
    assert shape.gram_block_flops == 2 * 3 * 2 * pairs * (7 + 9)
    assert shape.strip_positions == blocks[0]


@pytest.mark.parametrize(
    ("positions", "width", "form"),
    [
        (256, 256, EXPLICIT),  # T (M + N) > M N
        (8, 512, GRAM),
        (1, 1000, GRAM),
        (1500, 4096, BLOCKED),  # the blocks below the diagonal only
        (65_536, 64, EXPLICIT),
    ],
)
def test_the_cheapest_that_is_no_larger_than_the_layers_own(positions: int, width: int, form: str) -> None:
    found = chosen(LayerShape(2, 1, positions, width, width), MIXED, 4, CPU_BALANCE, keeps=True)
    assert found.form == form
    own = 4 * 2 * positions * 2 * width
    assert found.num_bytes <= max(own, BLOCK_BYTES)


def test_the_time_of_a_form_is_that_of_its_flops_and_its_bytes() -> None:
    balance = Balance(10.0, 100.0, 1000)
    costs = norm_costs(SMALL, 4, balance, keeps=True)
    sides, product = 3 * 10 * 12 * 4, 2 * 3 * 10 * 35
    gram = 2 * 3 * 100 * 4  # more than half of the cache
    assert costs[GRAM].time == pytest.approx((costs[GRAM].flops + product) / 10 + 2 * sides + 2 * gram)
    kept = 3 * 35 * 4
    assert costs[EXPLICIT].time == pytest.approx((product + 2 * 3 * 35) / 10 + sides + kept)
    short = norm_costs(SMALL, 2, balance, keeps=False)
    assert short[EXPLICIT].time == pytest.approx(2 * product / 100 + sides)
    widened, products = 2 * sides, costs[GRAM].flops / 10 + product / 100
    assert short[GRAM].time == pytest.approx(products + sides + widened + 2 * gram)


@pytest.mark.parametrize(
    ("target", "element_size", "is_gram"), [("H100", 2, False), ("H100", 4, True), ("T4", 4, True)]
)
def test_blocks_are_what_is_faster_on_the_target(target: str, element_size: int, is_gram: bool) -> None:
    """Gram matrices are products of fp32, which an H100 multiplies 15 times slower than bf16."""
    shape = LayerShape(16, 1, 1024, 8192, 2048)
    found = chosen(shape, MIXED, element_size, DEVICES[target].balance, keeps=True)
    assert (found.form, found.is_gram) == (BLOCKED, is_gram)


def test_a_blocked_norm_is_bounded_whatever_grows() -> None:
    for positions, width in ((65_536, 64), (512, 16_384)):
        cost = norm_costs(LayerShape(8, 1, positions, width, width), 4, CPU_BALANCE, keeps=False)[BLOCKED]
        assert cost.num_bytes <= BLOCK_BYTES
