"""The costs of norm forms by arithmetic, and where the cheapest one changes."""

import pytest

from dpprof.vocabulary.clipping import BLOCKED, EXPLICIT, GRAM, MIXED
from dpprof.vocabulary.norm_forms import BLOCK_BYTES, LayerShape, chosen, norm_costs


def test_costs_by_arithmetic() -> None:
    costs = norm_costs(LayerShape(3, 1, 10, 7, 5), 4, keeps=True)
    assert costs[GRAM].flops == 2 * 3 * 100 * 12
    assert costs[GRAM].num_bytes == 2 * 3 * 100 * 4
    assert costs[GRAM].sum_flops == 2 * 3 * 10 * 35
    assert costs[EXPLICIT].flops == 2 * 3 * 10 * 35
    assert costs[EXPLICIT].sum_flops == 2 * 3 * 35
    assert costs[EXPLICIT].num_bytes == 3 * 35 * 4
    assert costs[EXPLICIT].is_kept
    dropped = norm_costs(LayerShape(3, 1, 10, 7, 5), 4, keeps=False)[EXPLICIT]
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


def test_gram_matrices_take_four_bytes_a_number_under_bf16() -> None:
    assert norm_costs(LayerShape(1, 1, 8, 4, 4), 2, keeps=True)[GRAM].num_bytes == 2 * 64 * 4


@pytest.mark.parametrize(
    ("positions", "rows", "columns", "form"),
    [
        (256, 256, 256, EXPLICIT),  # T (M + N) > M N
        (8, 512, 512, GRAM),
        (1, 1000, 1000, GRAM),
        (1500, 4096, 4096, BLOCKED),  # the blocks below the diagonal only
        (65_536, 64, 64, EXPLICIT),
    ],
)
def test_the_cheapest_that_is_no_larger_than_the_layers_own(
    positions: int, rows: int, columns: int, form: str
) -> None:
    shape = LayerShape(2, 1, positions, rows, columns)
    found = chosen(shape, MIXED, 4, keeps=True)
    assert found.form == form
    own = 4 * 2 * positions * (rows + columns)
    assert found.num_bytes <= max(own, BLOCK_BYTES)


def test_a_blocked_norm_is_bounded_whatever_grows() -> None:
    for positions, width in ((65_536, 64), (512, 16_384)):
        cost = norm_costs(LayerShape(8, 1, positions, width, width), 4, keeps=False)[BLOCKED]
        assert cost.num_bytes <= BLOCK_BYTES
