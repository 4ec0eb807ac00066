"""Memory that kernels take while they run, against what torch 2.13 asked of its CUDA allocator, in MiB."""

from typing import Any

import pytest
import torch

from dpprof.config.devices import DEVICES
from dpprof.measure.passes.kernel_scratch import attention_scratch, convolution_copies, scratch_bytes
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


def test_of_a_softmax() -> None:
    """Of 2 x 32 heads over 256 positions: what torch took beside the result, in both directions."""
    scores = torch.empty(2, 32, 256, 256, device="meta")
    assert scratch_bytes(aten._safe_softmax.default, (scores, -1), H100) == [4194304, 16384, 4]
    assert scratch_bytes(aten._softmax_backward_data.default, (scores, scores, -1, torch.float32), H100) == [
        16777216
    ]


@pytest.mark.parametrize(
    ("batch", "size", "channels", "kernel", "asked"),
    [
        (32, 56, (64, 64), 3, [24.6, 24.6, 24.9]),
        (32, 56, (256, 128), 1, [73.5, 73.5, 77.1]),
        (256, 14, (256, 256), 3, [50.1, 50.1, 50.1]),
        (256, 7, (512, 2048), 1, [61.3, 61.3, 61.3]),
        (8, 224, (64, 64), 3, [98.1, 98.1, 98.4]),
    ],
)
def test_cudnn_copies_the_tensors_of_a_convolution(
    batch: int, size: int, channels: tuple[int, int], kernel: int, asked: list[float]
) -> None:
    """What its planner asked for in bf16 on an H100: in forward, and for both gradients."""
    x, weight, y = (
        torch.empty(shape, device="meta", dtype=torch.bfloat16)
        for shape in (
            (batch, channels[0], size, size),
            (channels[1], channels[0], kernel, kernel),
            (batch, channels[1], size, size),
        )
    )
    shape = ([1, 1], [kernel // 2] * 2, [1, 1], False, [0, 0], 1)
    found = convolution_copies(aten.convolution.default, (x, weight, None, *shape), y)
    backward = (y, x, weight, [0], *shape, [True, True, False])
    found += convolution_copies(aten.convolution_backward.default, backward, (x, weight, None))
    assert [num_bytes / MIB for num_bytes in found] == pytest.approx(asked, rel=0.06)


def test_cudnn_copies_nothing_that_is_in_its_layout_or_has_few_channels_or_groups() -> None:
    def copies(x: torch.Tensor, weight: torch.Tensor, groups: int) -> list[int]:
        y = torch.empty(8, weight.shape[0], 32, 32, device="meta")
        shape = ([1, 1], [1, 1], [1, 1], False, [0, 0], groups)
        found: list[int] = convolution_copies(aten.convolution.default, (x, weight, None, *shape), y)
        return found

    x, weight = (torch.empty(*shape, device="meta") for shape in [(8, 64, 32, 32), (64, 64, 3, 3)])
    assert copies(x, weight, 1) == [4 * (2 * x.numel() + weight.numel())]
    assert copies(x.to(memory_format=torch.channels_last), weight, 1) == []
    assert copies(x, weight[:, :2], 32) == []
    assert copies(x[:, :3].contiguous(), weight[:, :3], 1) == []
