"""Fake tensors that are answered from memory against those of torch."""

import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves

from dpprof.measure.trainers.quick_fakes import QuickFakeTensorMode

Call = Callable[[Tensor, Tensor], Any]
_aten = torch.ops.aten
# Of x, a matrix of 4 x 6 over a part of its storage, and y, 6 x 6.
CALLS: dict[str, Call] = {
    "product": lambda x, y: x @ y,
    "transposed": lambda x, y: x.t(),
    "view": lambda x, y: y.view(3, 12),
    "reshaped, with a copy": lambda x, y: x.t().reshape(-1),
    "slice": lambda x, y: x[1:, 2:5],
    "strided": lambda x, y: y.as_strided((2, 2), (6, 1), 3),
    "expanded": lambda x, y: x.unsqueeze(0).expand(3, 4, 6),
    "detached": lambda x, y: x.detach(),
    "chunks": lambda x, y: x.chunk(3, dim=1),
    "parts": lambda x, y: torch.split(x, [1, 3]),
    "rows": lambda x, y: x.unbind(),
    "in place": lambda x, y: x.add_(1),
    "into": lambda x, y: torch.mul(x, x, out=torch.empty(4, 6)),
    "in place, a list": lambda x, y: torch._foreach_mul_([x, y], 2.0),
    "a list": lambda x, y: torch._foreach_mul([x, y], 2.0),
    "several": lambda x, y: x.max(dim=1),
    "norm": lambda x, y: torch.nn.functional.layer_norm(x, (6,)),
    "joined": lambda x, y: torch.cat([x, y]),
    "an integer": lambda x, y: x.new_zeros(2, dtype=torch.int64) + 1,
    "a float": lambda x, y: x.new_zeros(2, dtype=torch.int64) + 1.0,
    "a truth": lambda x, y: x.new_zeros(2, dtype=torch.bool) + True,
    "short": lambda x, y: x.to(torch.bfloat16),
    "as it is": lambda x, y: x.to(torch.float32),
    "conjugate": lambda x, y: y.to(torch.complex64).conj(),
    "negative": lambda x, y: y.to(torch.complex64).conj().imag,
    "random": lambda x, y: torch.randn(3, 5),
    "like": lambda x, y: torch.empty_like(y.t()),
    "picked": lambda x, y: y[torch.tensor([1, 2])],
    "unsqueezed in place": lambda x, y: x.unsqueeze_(1),
    "longer": lambda x, y: torch.empty(2).resize_(50),
    "distinct": lambda x, y: torch.ops.fsdp.chunk_cat([y, y], 0, 2, out=torch.empty(2, 36)),
}


def found(mode: FakeTensorMode, call: Call, times: int) -> list[list[Any]]:
    """What a call gives, time after time: of its results and of its arguments all that can be told."""
    given = []
    with mode:
        for _ in range(times):
            x, y = torch.zeros(50)[10:34].view(4, 6), torch.zeros(6, 6)
            results = call(x, y)
            tensors = [*tree_leaves(results), x, y]
            given.append(
                [type(results), *(told(one, (x, y)) if isinstance(one, Tensor) else one for one in tensors)]
            )
    return given


def told(tensor: Tensor, others: tuple[Tensor, ...]) -> tuple[Any, ...]:
    storage = tensor.untyped_storage()
    return (
        *(type(tensor), tensor.shape, tensor.stride(), tensor.storage_offset(), tensor.dtype, tensor.device),
        *(tensor.requires_grad, tensor.is_conj(), tensor.is_neg(), tensor.layout, storage.nbytes()),
        {name: value for name, value in vars(tensor).items() if not isinstance(value, FakeTensorMode)},
        [other is tensor for other in others],
        [other.untyped_storage()._cdata == storage._cdata for other in others],
    )


@pytest.mark.parametrize("name", CALLS)
def test_a_call_gives_the_same_however_often_it_is_made(name: str) -> None:
    (expected,) = found(FakeTensorMode(allow_non_fake_inputs=True), CALLS[name], 1)
    assert found(QuickFakeTensorMode(), CALLS[name], 4) == [expected] * 4


def test_torch_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    ask = FakeTensorMode.dispatch

    def noted(self: Any, func: Any, *given: Any, **more: Any) -> Any:
        asked.append(func)
        return ask(self, func, *given, **more)

    monkeypatch.setattr(FakeTensorMode, "dispatch", noted)
    with QuickFakeTensorMode():
        for _ in range(4):
            asked.clear()
            x = torch.zeros(4, 6)
            torch._foreach_mul_([x.t() @ x, x.chunk(2)[0]], 2.0)
    assert {str(one) for one in asked} <= {"prim.device.default"}


def test_calls_that_torch_tells_apart_are_told_apart() -> None:
    """The same operator on tensors alike but for one thing that the result depends on."""
    with QuickFakeTensorMode():
        plain = torch.zeros(36).view(6, 6)
        turned, wide = plain.t(), torch.zeros(6, 7)[:, :6]
        short, later = plain.to(torch.bfloat16), torch.zeros(40)[4:].view(6, 6)
        for _ in range(3):
            strides = [torch.empty_like(x).stride() for x in (plain, turned, wide)]
            assert strides == [(6, 1), (1, 6), (6, 1)]
            assert [x.view(36).storage_offset() for x in (plain, later)] == [0, 4]
            assert [(x + 1).dtype for x in (plain, short)] == [torch.float32, torch.bfloat16]
            assert [(plain.to(torch.int64) + one).dtype for one in (1, 1.0)] == [torch.int64, torch.float32]
            assert torch.zeros(2).dtype == torch.float32
            torch.set_default_dtype(torch.float64)
            try:
                assert torch.zeros(2).dtype == torch.float64
            finally:
                torch.set_default_dtype(torch.float32)


def test_each_call_makes_memory_of_its_own_and_keeps_none() -> None:
    with QuickFakeTensorMode():
        x = torch.zeros(4, 6)
        made = [torch.nn.functional.layer_norm(x, (6,)) for _ in range(5)]
        assert len({one.untyped_storage()._cdata for one in made}) == 5
        alive = [weakref.ref(one.untyped_storage()) for one in made]
        made.clear()
    assert all(one() is None for one in alive)
