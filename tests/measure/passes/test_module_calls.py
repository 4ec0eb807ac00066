"""What surrounds the calls of modules: outside, nested, failing, in other threads."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext

import pytest
import torch
from followed_modules import IDS, Followed, layers, transformer
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from dpprof.measure.passes.modules import ModulePaths


def test_outside_calls_and_after_leaving_nothing_is_told() -> None:
    model = layers()
    modules = ModulePaths(nullcontext)
    seen: list[str] = []
    model[1].register_forward_hook(lambda *_: seen.append(modules.current()))
    with modules:
        modules.name(model)
        assert modules.current() == ""
        model(torch.ones(1, 3))
        assert modules.current() == ""
    model(torch.ones(1, 3))
    # A module's own hooks run when the call itself is over.
    assert seen == ["", ""]


class Around:
    """Notes when it is entered and left."""

    def __init__(self) -> None:
        self.log: list[str] = []

    @contextmanager
    def __call__(self) -> Iterator[None]:
        self.log.append("in")
        try:
            yield
        finally:
            self.log.append("out")


def test_each_outermost_call_is_surrounded_once() -> None:
    around = Around()
    model = transformer()
    with Followed(around) as followed:
        followed.modules.name(model)
        assert around.log == []
        loss = model(IDS).sum()
        assert around.log == ["in", "out"]
        model.head(torch.ones(1, 4))
        assert around.log == 2 * ["in", "out"]
        loss.backward()
        assert around.log == 2 * ["in", "out"]
    model(IDS)
    assert around.log == 2 * ["in", "out"]


def test_inner_calls_happen_within_what_surrounds_the_outermost() -> None:
    around = Around()
    model = nn.Sequential(nn.GELU(), nn.Sequential(nn.GELU()))
    inner = model[1]
    inner.register_forward_pre_hook(lambda *_: around.log.append("inner"))
    with Followed(around) as followed:
        followed.modules.name(model)
        model(torch.ones(2))
    assert around.log == ["in", "inner", "out"]


def test_each_recomputed_block_is_surrounded() -> None:
    around = Around()
    model = transformer(activation_checkpointing=True)
    with Followed(around) as followed:
        followed.modules.name(model)
        loss = model(IDS).sum()
        assert around.log == ["in", "out"]
        loss.backward()
    assert around.log == 3 * ["in", "out"]


def test_a_forward_that_fails_leaves_no_trace() -> None:
    around = Around()

    class Fails(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise RuntimeError("fails")

    model = nn.Sequential(nn.Linear(3, 4), nn.Sequential(Fails()))
    with Followed(around) as followed:
        followed.modules.name(model)
        with pytest.raises(RuntimeError, match="fails"):
            model(torch.ones(1, 3))
        assert around.log == ["in", "out"]
        assert followed.modules.current() == ""
        model[0](torch.ones(1, 3)).sum()
    found = followed.taken()
    assert found["addmm"] == ["0", "0"]
    assert found["sum"] == [""]
    assert around.log == 2 * ["in", "out"]


def test_forward_in_another_thread_is_told() -> None:
    model = layers()
    paths: list[str] = []
    with Followed() as followed, ThreadPoolExecutor(1) as thread:
        followed.modules.name(model)
        model[1].register_forward_pre_hook(lambda *_: paths.append(followed.modules.current()))
        thread.submit(lambda: model(torch.ones(5, 3)).sum()).result().backward()
    found = followed.taken()
    assert paths == ["1"]
    assert found["mm"] == ["3", "3", "0"]
    assert found["gelu_backward"] == ["1"]


def test_forwards_in_several_threads_are_told_as_far_as_they_agree() -> None:
    """In a new thread autograd numbers nodes from 0: those of the first calls have the same number."""
    model = nn.Sequential(nn.GELU(), nn.Sigmoid(), nn.Tanh())
    x = torch.ones(2, requires_grad=True)
    with Followed() as followed, ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as other:
        followed.modules.name(model)
        one.submit(lambda: model[2](model[0](x))).result()
        other.submit(lambda: model[2](model[1](x))).result().sum().backward()
    found = followed.taken()
    assert found["sigmoid_backward"] == [""]
    assert found["tanh_backward"] == ["2"]


def test_checkpointed_functions_within_a_module() -> None:
    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.GELU()

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = checkpoint(lambda y: self.inner(y.tanh()).sigmoid(), x, use_reentrant=True)
            return out

    model = nn.Sequential(Checkpointed(), nn.LayerNorm(2))
    with Followed() as followed:
        followed.modules.name(model)
        loss = model(torch.ones(2, requires_grad=True)).sum()
        forward = followed.taken()
        loss.backward()
    backward = followed.taken()
    assert forward["tanh"] == forward["sigmoid"] == ["0"]
    assert forward["gelu"] == backward["gelu"] == backward["gelu_backward"] == ["0.inner"]
    assert backward["native_layer_norm_backward"] == ["1"]
