"""Sums of gradients that autograd makes in place, against the allocator without a ledger."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses import FakeTensorMode
from torch.profiler import ProfilerActivity, profile

from dpprof.measure.passes.account import Account
from dpprof.measure.passes.accumulation import references_of_last
from dpprof.measure.passes.events import read
from dpprof.measure.passes.ledger import Ledger

pytestmark = pytest.mark.skipif(references_of_last() is None, reason="this torch counts no references")
# Each makes little in forward, and gradients as large as its input in backward, where the peak is.
COLUMN, LAYERS = torch.randn(8, 64, 1), [nn.Linear(64, 1, bias=False) for _ in range(3)]
LOSSES: dict[str, Callable[[Tensor], Tensor]] = {
    "fresh gradients": lambda x: torch.bmm(x, COLUMN) + torch.bmm(x, COLUMN) + torch.bmm(x, COLUMN),
    "a gradient that two share": lambda x: (x + x + x)[..., :1],
    "views of products": lambda x: LAYERS[0](x) + LAYERS[1](x) + LAYERS[2](x),
    "a single one": lambda x: torch.bmm(x, COLUMN),
}


def backward(of: Callable[[Tensor], Tensor], x: Tensor) -> None:
    of(x.neg()).sum().backward()


def tensors_of_allocator(of: Callable[[Tensor], Tensor]) -> int:
    """Tensors as large as the input that a step allocates at its peak."""
    x = torch.randn(8, 64, 64, requires_grad=True)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        backward(of, x)
    level = peak = 0
    for event in read(profiler, "cpu").allocations:
        level += event.num_bytes
        peak = max(peak, level)
    return peak // x.nbytes


def tensors_of_ledger(of: Callable[[Tensor], Tensor], *, is_fake: bool) -> int:
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    x = torch.randn(8, 64, 64, requires_grad=True)
    with Ledger("cpu") as ledger:
        x = mode.from_tensor(x).detach().requires_grad_() if is_fake else x
        ledger.storages.see(x)
        ledger.storages.start_step()
        backward(of, x)
        account = Account(ledger.storages.end_step())
    return (account.peak - sum(account.start.values())) // x.nbytes


CASES = [*((name, False) for name in LOSSES), ("fresh gradients", True), ("a gradient that two share", True)]


@pytest.mark.parametrize(("name", "is_fake"), CASES)
def test_the_peak_is_that_without_a_ledger(name: str, is_fake: bool) -> None:
    for layer in LAYERS:
        layer.weight.grad = torch.zeros_like(layer.weight)
    assert tensors_of_ledger(LOSSES[name], is_fake=is_fake) == tensors_of_allocator(LOSSES[name])


def test_a_ledger_that_takes_every_sum_for_a_new_tensor_sees_more(monkeypatch: pytest.MonkeyPatch) -> None:
    of = LOSSES["fresh gradients"]
    before = tensors_of_ledger(of, is_fake=False)
    monkeypatch.setattr("dpprof.measure.passes.ledger.is_in_place", lambda func, args: False)
    assert tensors_of_ledger(of, is_fake=False) > before
