import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from dpprof.errors import EstimateError
from dpprof.measure.passes.ledger import Ledger
from dpprof.measure.trainers.fake_tensors import fake_tensors
from dpprof.measure.trainers.per_sample.uses import squares_of

NAMED = {"dropout": "p", "scaled_dot_product_attention": "dropout_p"}


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


def test_dropout_keeps_a_byte_for_each_number_as_on_cuda_and_attention_with_it_no_matrix() -> None:
    def held(as_on_cuda: bool, name: str) -> list[tuple[int, int]]:
        """Sizes and bytes for each number of what the backward of a function keeps beside its input."""
        with fake_tensors(as_on_cuda=as_on_cuda):
            x = torch.randn(2, 3, 64, 8, requires_grad=True)
            kept: list[torch.Tensor] = []

            def keep(tensor: torch.Tensor) -> torch.Tensor:
                kept.append(tensor)
                return tensor

            with torch.autograd.graph.saved_tensors_hooks(keep, keep):
                getattr(F, name)(*([x] if name == "dropout" else [x, x, x]), **{NAMED[name]: 0.1})
            return [(t.numel(), t.element_size()) for t in kept if t is not x]

    assert held(True, "dropout") == [(2 * 3 * 64 * 8, 1)]
    assert held(False, "dropout") == [(2 * 3 * 64 * 8, 4)]
    attention = "scaled_dot_product_attention"
    assert max(numel for numel, _ in held(True, attention)) == 2 * 3 * 64 * 8
    assert max(numel for numel, _ in held(False, attention)) == 2 * 3 * 64 * 64


def test_tensors_from_elsewhere_become_fake_when_used() -> None:
    real = torch.from_numpy(np.ones((4, 8), dtype="float32"))
    with fake_tensors():
        assert nn.Linear(8, 2)(real).shape == (4, 2)


@pytest.mark.parametrize(
    ("operate", "name"),
    [
        (lambda tensor: tensor.sum().item(), "_local_scalar_dense"),
        (lambda tensor: torch.nonzero(tensor), "nonzero"),
        (lambda tensor: tensor[tensor > 0], "nonzero"),
        (lambda tensor: torch.unique(tensor), "unique"),
    ],
)
def test_an_operator_that_needs_data_is_named(operate: object, name: str) -> None:
    with pytest.raises(EstimateError, match=f"{name}.*measure it with `dpprof profile`"), fake_tensors():
        operate(torch.randn(4, 4))  # type: ignore[operator]
