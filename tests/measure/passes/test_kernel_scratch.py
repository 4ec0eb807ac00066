"""Memory that kernels take while they run, against what torch 2.13 asked of its CUDA allocator, in MiB."""

from typing import Any

import pytest
import torch

from dpprof.config.devices import DEVICES
from dpprof.measure.passes.kernel_scratch import attention_scratch, convolution_scratch, scratch_bytes
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
    given = (scores, scores, -1, torch.float32)
    assert scratch_bytes(aten._softmax_backward_data.default, given, H100) == [16777216]


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
    images = ((batch, number, size, size) for number in channels)
    x, y, weight = (
        torch.empty(shape, device="meta", dtype=torch.bfloat16)
        for shape in (*images, (channels[1], channels[0], kernel, kernel))
    )
    found = of_convolution(x, weight, y) + of_its_backward(x, weight, y)
    assert [num_bytes / MIB for (num_bytes,) in found] == pytest.approx(asked, rel=0.06)


def of_convolution(
    x: torch.Tensor, weight: torch.Tensor, y: torch.Tensor, *, groups: int = 1, is_hopper: bool = True
) -> list[list[int]]:
    """What a convolution takes that leaves the size of an image as it is."""
    padding = [size // 2 for size in weight.shape[2:]]
    args = (x, weight, None, [1, 1], padding, [1, 1], False, [0, 0], groups)
    return convolution_scratch(aten.convolution.default, args, y, is_hopper=is_hopper)


def of_its_backward(
    x: torch.Tensor,
    weight: torch.Tensor,
    y: torch.Tensor,
    *,
    wanted: tuple[bool, bool] = (True, True),
    is_hopper: bool = True,
) -> list[list[int]]:
    """What its backward takes for the gradients of the input and of the weight."""
    padding = [size // 2 for size in weight.shape[2:]]
    args = (y, x, weight, [0], [1, 1], padding, [1, 1], False, [0, 0], 1, [*wanted, False])
    result = (x if wanted[0] else None, weight if wanted[1] else None, None)
    return convolution_scratch(aten.convolution_backward.default, args, result, is_hopper=is_hopper)


def test_cudnn_copies_nothing_of_few_channels_or_groups() -> None:
    x, weight = (torch.empty(*shape, device="meta") for shape in [(8, 64, 32, 32), (64, 64, 3, 3)])
    assert of_convolution(x, weight, x) == [[4 * (2 * x.numel() + weight.numel())]]
    assert of_convolution(x, weight[:, :2], x, groups=32) == []
    assert of_convolution(x[:, :3].contiguous(), weight[:, :3], x) == []


@pytest.mark.parametrize(
    ("size", "channels", "kernel", "asked"),
    [
        (56, (64, 64), 3, [6_570_496, 6_570_496, 14_173_184]),
        (56, (64, 256), 1, [6_488_576, 25_756_160, 33_554_432]),
        (28, (512, 128), 1, [13_107_712, 3_473_920, 18_153_984]),
        (7, (512, 2048), 1, [4_997_632, 7_406_080, 4_014_592]),
    ],
)
def test_before_hopper_cudnn_copies_what_it_reads_with_channels_last_in_fp32(
    size: int, channels: tuple[int, int], kernel: int, asked: list[int]
) -> None:
    """What its planner asked for in fp32, in TF32, for an A100; on an H100 512 bytes in the first two."""
    x, y = (torch.empty(8, number, size, size, device="meta") for number in channels)
    x, y = (image.to(memory_format=torch.channels_last) for image in (x, y))
    weight = torch.empty(channels[1], channels[0], kernel, kernel, device="meta")
    (forward,) = of_convolution(x, weight, y, is_hopper=False)
    of_input, of_weight = of_its_backward(x, weight, y, is_hopper=False)
    assert [sum(forward) + 512, sum(of_input) + 512] == asked[:2]
    assert sum(of_weight) <= asked[2] <= 1.15 * sum(of_weight), "partial sums are left out"
    assert of_convolution(x, weight, y) == [[]], "on Hopper"
    assert of_convolution(x.bfloat16(), weight, y, is_hopper=False) == [[]]


def test_torch_copies_an_image_to_the_format_of_the_weight() -> None:
    """With weights that have their channels last, as after a group norm, which makes images contiguous."""
    x, y = torch.empty(8, 64, 56, 56, device="meta"), torch.empty(8, 128, 56, 56, device="meta")
    weight = torch.empty(128, 64, 3, 3, device="meta").to(memory_format=torch.channels_last)
    assert of_convolution(x, weight, y) == [[x.nbytes]]
    assert of_its_backward(x, weight, y) == [[y.nbytes, x.nbytes]] * 2
    assert of_its_backward(x, weight, y, wanted=(True, False)) == [[y.nbytes]]
    (forward,) = of_convolution(x, weight, y, is_hopper=False)
    assert forward == [x.nbytes, x.nbytes + weight.nbytes]
