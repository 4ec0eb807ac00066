"""Scratch of reductions and attention, against what torch 2.13 asked of its real CUDA allocator, in MiB."""

from typing import Any

import pytest
import torch

from dpprof.config.devices import DEVICES
from dpprof.measure.passes.kernel_scratch import attention_scratch, scratch_bytes
from dpprof.vocabulary.units import MIB

aten = torch.ops.aten
H100, A100 = DEVICES["H100"].processors, DEVICES["A100-80GB"].processors


def of_sum(rows: int, columns: int, gpu: Any = H100, dtype: torch.dtype = torch.float32) -> list[int]:
    tensor = torch.empty(rows, columns, dtype=dtype, device="meta")
    found: list[int] = scratch_bytes(aten.sum.dim_IntList, (tensor, [0], True), gpu)
    return found


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


@pytest.mark.parametrize(
    ("length", "size", "fp32", "cudnn", "flash"),
    [
        (100, 16, [[38400, 2400, 2400], [2400, 196800]], 41056, [3072, 98304]),
        (128, 32, [[98304, 3072, 3072], [3072, 196800]], 101632, [3072, 98304]),
        (300, 64, [[460800, 7200, 7200], [7200, 492000]], 468256, [9216, 589824]),
        (512, 96, [[1179648, 12288, 12288], [12288, 1573632]], 1192192, [12288, 1179648]),
        (500, 128, [[1536000, 12000, 12000], [12000, 1573632]], 1548256, [12288, 1572864]),
        (512, 256, [[3145728, 12288, 12288], [12288, 3147264]], 3158272, [12288, 3145728]),
    ],
)
def test_of_attention_in_backward(
    length: int, size: int, fp32: list[list[int]], cudnn: int, flash: list[int]
) -> None:
    """Of two samples with three heads: what torch 2.13 took in fp32, and in bf16 on an H100 and an A100."""
    shape = (2, 3, length, size)
    assert attention_scratch(torch.empty(shape, device="meta"), is_hopper=True) == fp32
    short = torch.empty(shape, device="meta", dtype=torch.bfloat16)
    assert attention_scratch(short, is_hopper=True) == [[cudnn]]
    assert attention_scratch(short, is_hopper=False) == [flash]
