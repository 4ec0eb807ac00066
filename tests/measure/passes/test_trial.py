from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from dpprof.measure.passes.trial import Layout, Trial, Trials

aten = torch.ops.aten


def tried(operator: Any, *args: Any, trials: Trials | None = None) -> Trial | None:
    with FakeTensorMode():
        fake = [torch.empty(arg) if isinstance(arg, torch.Size) else arg for arg in args]
        return (trials or Trials()).of(operator, tuple(fake), {}, operator(*fake), 0)


def test_an_operator_without_working_memory_takes_its_result() -> None:
    found = tried(aten.add.Tensor, torch.Size((5, 7)), torch.Size((5, 7)))
    assert found == Trial(140, 140, [Layout((5, 7), (7, 1), torch.float32, 35)])


def test_an_operator_that_copies_takes_the_copy_too() -> None:
    """A product reads whole rows: one whose elements lie apart is copied first."""
    with FakeTensorMode():
        apart = torch.empty(6, 8)[:, ::2]
        found = Trials().of(aten.mm.default, (apart, torch.empty(4, 3)), {}, torch.empty(6, 3), 0)
    assert found is not None
    assert (found.peak, found.left) == (4 * 6 * 3 + 4 * 6 * 4, 4 * 6 * 3)


def test_tensors_that_share_memory_share_it_in_the_trial() -> None:
    with FakeTensorMode():
        layout = Layout.of_argument(torch.empty(4, 1).expand(4, 1_000_000))
    assert layout.num_elements == 4
    assert layout.zeros().untyped_storage().nbytes() == 16


def test_what_cannot_run_on_zeros_is_no_trial() -> None:
    assert tried(aten.multinomial.default, torch.Size((4,)), 2) is None


def test_each_form_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    trials, calls = Trials(), []
    zeros = Layout.zeros

    def counted(layout: Layout) -> Tensor:
        calls.append(layout.shape)
        return zeros(layout)

    monkeypatch.setattr(Layout, "zeros", counted)
    for shape in ((2, 3), (2, 3), (3, 2)):
        tried(aten.neg.default, torch.Size(shape), trials=trials)
    assert calls == [(2, 3), (3, 2)]
