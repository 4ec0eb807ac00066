"""Products that are added in place count as many FLOPs as those that are not."""

import pytest
import torch

from dpprof.measure.passes.traffic import flops

ATEN = torch.ops.aten


@pytest.mark.parametrize(
    ("in_place", "shapes", "expected"),
    [
        (ATEN.addmm_.default, [(3, 5), (3, 4), (4, 5)], 2 * 3 * 4 * 5),
        (ATEN.baddbmm_.default, [(2, 3, 5), (2, 3, 4), (2, 4, 5)], 2 * 2 * 3 * 4 * 5),
        (ATEN.addmv_.default, [(3,), (3, 4), (4,)], 2 * 3 * 4),
    ],
)
def test_flops(in_place: torch._ops.OpOverload, shapes: list[tuple[int, ...]], expected: int) -> None:
    tensors = tuple(torch.zeros(shape) for shape in shapes)
    assert flops(in_place, tensors, {}, tensors[0]) == expected
