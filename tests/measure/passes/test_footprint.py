"""The memory that a tensor really has."""

from collections.abc import Callable
from itertools import product

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from operator_calls import floats
from torch import Tensor

from dpprof.measure.passes.traffic import footprint, tensors_in


def test_tensors_in_nested_lists() -> None:
    a, b, c = floats(1), floats(2), floats(3)
    found = list(tensors_in([a, 1, None, [b, "x", (c,)], {"not": "here"}]))
    assert [t.numel() for t in found] == [1, 2, 3]


VIEWS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "expand": lambda t, n: t.expand(n, *t.shape),
    "slice": lambda t, n: t[n % 3 :: n % 2 + 1],
    "select": lambda t, n: t.select(-1, n % t.shape[-1]) if t.dim() > 1 and t.shape[-1] else t,
    "narrow": lambda t, n: t[..., : n + 1],
    "transpose": lambda t, n: t.transpose(0, -1),
    "unsqueeze": lambda t, n: t.unsqueeze(-1),
    "squeeze": lambda t, n: t.squeeze(-1) if t.dim() > 1 else t,
}


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=3),
    st.lists(st.tuples(st.sampled_from(sorted(VIEWS)), st.integers(0, 4)), max_size=4),
    st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
)
def test_the_footprint_of_any_view_is_that_of_its_distinct_elements(
    shape: list[int], views: list[tuple[str, int]], dtype: torch.dtype
) -> None:
    tensor = torch.zeros(shape, dtype=dtype)
    for name, number in views:
        tensor = VIEWS[name](tensor, number)
    places = {
        sum(i * stride for i, stride in zip(where, tensor.stride(), strict=True))
        for where in product(*(range(size) for size in tensor.shape))
    }
    assert footprint(tensor) == len(places) * dtype.itemsize


def test_the_footprint_of_overlapping_windows_is_at_most_the_storage() -> None:
    windows = floats(10).unfold(0, 4, 1)
    assert windows.numel() == 28
    assert footprint(windows) == 40
