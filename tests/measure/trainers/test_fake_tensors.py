import numpy as np
import pytest
import torch
from torch import nn

from dpprof.errors import EstimateError
from dpprof.measure.passes.ledger import Ledger
from dpprof.measure.trainers.fake_tensors import fake_tensors
from dpprof.measure.trainers.per_sample.uses import squares_of


@pytest.mark.parametrize(("as_on_cuda", "dtype"), [(True, torch.float32), (False, torch.bfloat16)])
def test_layer_norm_under_autocast_runs_as_on_the_device(as_on_cuda: bool, dtype: torch.dtype) -> None:
    with fake_tensors(as_autocast_on_cuda=as_on_cuda), torch.autocast("cpu", torch.bfloat16):
        hidden = nn.Linear(8, 8)(torch.randn(4, 8))
        assert hidden.dtype == torch.bfloat16
        assert nn.LayerNorm(8, dtype=dtype)(hidden).dtype == dtype


def test_sums_of_squares_make_no_copy_that_cuda_does_not_make() -> None:
    read = []
    for as_on_cuda in (True, False):
        with fake_tensors(as_autocast_on_cuda=as_on_cuda), Ledger("cpu") as ledger, ledger.counting():
            squares_of(torch.zeros(4, 2**10, dtype=torch.bfloat16))
        read.append(sum(row.read for row in ledger.take_traffic() if row.name == "aten::_to_copy"))
    assert read == [0, 4 * 2**10 * 2]


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
