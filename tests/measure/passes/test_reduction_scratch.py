"""Scratch of reductions, against what torch 2.13 asked of its real CUDA allocator, in MiB."""

from typing import Any

import pytest
import torch

from dpprof.config.devices import DEVICES
from dpprof.measure.passes.reduction_scratch import scratch_bytes
from dpprof.vocabulary.units import MIB

aten = torch.ops.aten
H100, A100 = DEVICES["H100"].processors, DEVICES["A100-80GB"].processors


def of_sum(rows: int, columns: int, gpu: Any = H100, dtype: torch.dtype = torch.float32) -> list[int]:
    tensor = torch.empty(rows, columns, dtype=dtype, device="meta")
    return scratch_bytes(aten.sum.dim_IntList, (tensor, [0], True), gpu)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("rows", "columns", "mib"),
    [(2048, 8000, 125), (2048, 32000, 140.625), (2048, 1024, 16), (1024, 8000, 62.5), (512, 8000, 0)],
)
def test_of_a_biass_gradient(rows: int, columns: int, mib: float, dtype: torch.dtype) -> None:
    """Partial results are fp32 for either type."""
    assert sum(of_sum(rows, columns, dtype=dtype)[:1]) == mib * MIB


def test_fewer_multiprocessors_split_less_and_an_odd_width_is_not_split_at_all() -> None:
    assert of_sum(2048, 8000, A100)[0] == 109.375 * MIB
    assert of_sum(4096, 50257) == []


def test_neighbouring_dimensions_are_one() -> None:
    tensor = torch.empty(4, 512, 8000, device="meta")
    assert scratch_bytes(aten.sum.dim_IntList, (tensor, [0, 1], True), H100) == of_sum(2048, 8000)


def test_a_sum_of_everything_leaves_a_number_for_each_block_of_threads() -> None:
    """132 multiprocessors with four blocks of 512 threads each, and a counter."""
    tensor = torch.empty(2**24, device="meta")
    assert scratch_bytes(aten.sum.default, (tensor,), H100) == [4 * 132 * 4, 4]


def test_what_is_no_reduction_takes_none() -> None:
    tensor = torch.empty(2048, 8000, device="meta")
    assert scratch_bytes(aten.mul.Tensor, (tensor, tensor), H100) == []
    assert scratch_bytes(aten.sum.default, (torch.empty(0, device="meta"),), H100) == []
