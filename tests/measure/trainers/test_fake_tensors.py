from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from example_runs import known
from torch import nn

from dpprof.errors import EstimateError
from dpprof.measure.passes.ledger import Ledger
from dpprof.measure.trainers.cuda_kernels import kernels_of_cuda
from dpprof.measure.trainers.fake_tensors import fake_tensors
from dpprof.measure.trainers.per_sample.uses import squares_of


def saved_by(call: Callable[[], object]) -> list[torch.Tensor]:
    """What is kept for the backward of a call."""
    kept: list[torch.Tensor] = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, keep):
        call()
    return kept


@pytest.mark.parametrize(("as_on_cuda", "dtype"), [(True, torch.float32), (False, torch.bfloat16)])
def test_layer_norm_under_autocast_runs_as_on_the_device(as_on_cuda: bool, dtype: torch.dtype) -> None:
    with fake_tensors(as_autocast_on_cuda=as_on_cuda), torch.autocast("cpu", torch.bfloat16):
        hidden = nn.Linear(8, 8)(torch.randn(4, 8))
        assert hidden.dtype == torch.bfloat16
        assert nn.LayerNorm(8, dtype=dtype)(hidden).dtype == dtype


def test_sums_of_squares_make_no_copy_that_cuda_does_not_make() -> None:
    read = []
    for as_on_cuda in (True, False):
        with fake_tensors(as_on_cuda=as_on_cuda), Ledger("cpu") as ledger, ledger.counting():
            squares_of(torch.zeros(4, 2**10, dtype=torch.bfloat16))
        read.append(sum(row.read for row in ledger.take_traffic() if row.name == "aten::_to_copy"))
    assert read == [0, 4 * 2**10 * 2]


@pytest.mark.parametrize(("as_on_cuda", "mask_bytes", "columns"), [(True, 1, 8), (False, 4, 64)])
def test_dropout_keeps_a_byte_for_each_number_as_on_cuda_and_attention_with_it_no_matrix(
    as_on_cuda: bool, mask_bytes: int, columns: int
) -> None:
    with fake_tensors(as_on_cuda=as_on_cuda):
        x = torch.randn(2, 3, 64, 8, requires_grad=True)
        of_dropout = saved_by(lambda: F.dropout(x, p=0.1))
        of_attention = saved_by(lambda: F.scaled_dot_product_attention(x, x, x, dropout_p=0.1))
    assert [(t.numel(), t.element_size()) for t in of_dropout if t is not x] == [(2 * 3 * 64 * 8, mask_bytes)]
    assert max(t.numel() for t in of_attention if t is not x) == 2 * 3 * 64 * columns


def attended(dtype: torch.dtype, heads: int, shared: int, size: int, **how: Any) -> list[str]:
    """Operators of attention as on CUDA, for queries of `heads` and keys of `shared` heads."""
    with fake_tensors(as_on_cuda=True), Ledger("cpu") as ledger, ledger.counting():
        query, key, value = (torch.zeros(2, n, 64, size, dtype=dtype) for n in (heads, shared, shared))
        result = F.scaled_dot_product_attention(query, key, value, enable_gqa=heads != shared, **how)
        assert (result.shape, result.dtype) == ((2, heads, 64, size), dtype)
    return [row.name for row in ledger.take_traffic()]


def test_attention_takes_the_kernel_that_cuda_has_for_it() -> None:
    """Flash attention shares keys among heads; the memory-efficient kernel, the one of fp32, does not."""
    fused, by_steps = "aten::_scaled_dot_product_flash_attention_for_cpu", "aten::_safe_softmax"
    assert fused in attended(torch.float32, 4, 4, 8)
    assert fused in attended(torch.bfloat16, 4, 2, 8)
    for causal in (True, False):
        names = attended(torch.float32, 4, 2, 8, is_causal=causal)
        assert by_steps in names
        assert ("aten::tril" in names) == causal
    assert by_steps in attended(torch.float32, 4, 4, 7)
    mask = torch.ones(64, 64, dtype=torch.bool)
    assert by_steps in attended(torch.bfloat16, 4, 2, 8, attn_mask=mask)
    assert fused in attended(torch.bfloat16, 4, 4, 8, attn_mask=mask)
    with fake_tensors(as_on_cuda=True), Ledger("cpu") as ledger, ledger.counting():
        x = torch.zeros(2, 64, 8)
        F.scaled_dot_product_attention(x, x, x)
    assert by_steps in [row.name for row in ledger.take_traffic()], "of three dimensions"


def test_attention_step_by_step_computes_the_same() -> None:
    query, key = torch.randn(2, 4, 16, 8), torch.randn(2, 2, 16, 8)
    mask = torch.ones(16, 16, dtype=torch.bool).tril()
    ways: list[dict[str, Any]] = [{"is_causal": True}, {"attn_mask": mask}, {"scale": 0.5}]
    for how in ways:
        expected = F.scaled_dot_product_attention(query, key, key, enable_gqa=True, **how)
        with kernels_of_cuda():
            found = F.scaled_dot_product_attention(query, key, key, enable_gqa=True, **how)
        torch.testing.assert_close(found, expected)


def test_an_rms_norm_keeps_its_input_and_a_number_for_each_row_as_on_cuda() -> None:
    with fake_tensors(as_on_cuda=True):
        x, norm = torch.randn(2, 3, 8, requires_grad=True), nn.RMSNorm(8)
        assert [tuple(t.shape) for t in saved_by(lambda: norm(x))] == [(2, 3, 8), (8,), (2, 3, 1)]
        norm(x).sum().backward()
        assert (known(x.grad).shape, known(norm.weight.grad).shape) == (x.shape, (8,))


@pytest.mark.parametrize("as_on_cuda", [True, False])
def test_a_group_norm_makes_images_contiguous_as_on_cuda(as_on_cuda: bool) -> None:
    with fake_tensors(as_on_cuda=as_on_cuda, as_autocast_on_cuda=as_on_cuda):
        images = torch.randn(2, 4, 8, 8).to(memory_format=torch.channels_last)
        assert nn.GroupNorm(2, 4)(images).is_contiguous() == as_on_cuda
        with torch.autocast("cpu", torch.bfloat16):
            made = nn.GroupNorm(2, 4)(nn.Conv2d(4, 4, 1)(images))
        assert made.dtype == (torch.float32 if as_on_cuda else torch.bfloat16), "as autocast has it there"


def test_tensors_from_elsewhere_become_fake_when_used() -> None:
    real = torch.from_numpy(np.ones((4, 8), dtype="float32"))
    with fake_tensors():
        assert nn.Linear(8, 2)(real).shape == (4, 2)


@pytest.mark.parametrize(
    ("name", "operate"),
    [
        ("_local_scalar_dense", lambda tensor: tensor.sum().item()),
        ("nonzero", torch.nonzero),
        ("nonzero", lambda tensor: tensor[tensor > 0]),
        ("unique", torch.unique),
    ],
)
def test_an_operator_that_needs_data_is_named(name: str, operate: Callable[[torch.Tensor], object]) -> None:
    with pytest.raises(EstimateError, match=f"{name}.*measure it with `dpprof profile`"), fake_tensors():
        operate(torch.randn(4, 4))
