"""Which module an operator works for, in forward, in backward and in hooks; the layers that a step calls."""

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from opacus.grad_sample import GradSampleModule
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from dpprof.measure.passes.modules import ModuleCalls
from dpprof.measure.workloads.transformer import SimpleBigModel
from dpprof.vocabulary.norm_forms import NormCost
from dpprof.vocabulary.theory import LayerRow

Paths = dict[str, list[str]]


class Followed(TorchDispatchMode):
    """Notes every operator called, with the module that it is said to work for."""

    def __init__(self, around: Callable[[], Any] = nullcontext) -> None:
        super().__init__()
        self.modules = ModuleCalls(around)
        self._rows: list[tuple[str, str]] = []

    def __enter__(self) -> "Followed":
        self.modules.__enter__()
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self.modules.__exit__(*error)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._rows.append((func._overloadpacket.__name__, self.modules.current()))
        return func(*args, **(kwargs or {}))

    def taken(self) -> Paths:
        """The paths by operator, in the order of calls, since the last time."""
        rows, self._rows = self._rows, []
        return {name: [path for other, path in rows if other == name] for name, _ in rows}


def trained(
    model: nn.Module, x: Tensor, wrap: Callable[[nn.Module], nn.Module] = lambda model: model
) -> tuple[Paths, Paths]:
    """The paths by operator of a forward and of its backward."""
    with Followed() as followed:
        called = wrap(model)
        followed.modules.name(model)
        loss = called(x).sum()
        forward = followed.taken()
        loss.backward()
    return forward, followed.taken()


def layers() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.LayerNorm(4), nn.Linear(4, 2))


def transformer(**how: Any) -> SimpleBigModel:
    return SimpleBigModel(vocab_size=7, hidden_dim=4, num_layers=2, num_heads=2, max_seq_len=3, **how)


IDS = torch.zeros(2, 3, dtype=torch.int64)
BLOCK_LAYERS = (*(f"attention.{name}" for name in ("query", "key", "value", "out")), "mlp_in", "mlp_out")
LINEARS = [f"blocks.{i}.{name}" for i in range(2) for name in BLOCK_LAYERS] + ["head"]
NORMS = [f"blocks.{i}.{name}" for i in range(2) for name in ("attention_norm", "mlp_norm")] + ["final_norm"]


def test_in_backward_it_works_for_the_module_whose_forward_made_the_node() -> None:
    model = layers()
    with Followed() as followed:
        followed.modules.name(model)
        assert followed.modules.current() == ""
        loss = model(torch.ones(5, 3)).sum()
        followed.taken()
        loss.backward(retain_graph=True)
        found = followed.taken()
        loss.backward()
    again = followed.taken()
    # The last layer's two products, the first's one: its input needs no gradient.
    assert found["mm"] == again["mm"] == ["3", "3", "0"], "a second backward is told alike"
    assert found["ones_like"] == [""]
    assert again["add_"] == 6 * [""], "what accumulates a parameter's gradient works for no module"


@pytest.mark.parametrize(("recomputes", "hooked"), [(False, False), (True, False), (True, True)])
def test_nested_modules_in_forward_backward_and_recomputation(recomputes: bool, hooked: bool) -> None:
    model = transformer(activation_checkpointing=recomputes, is_reentrant=hooked)
    forward, backward = trained(model, IDS, GradSampleModule) if hooked else trained(model, IDS)
    attention = "_scaled_dot_product_flash_attention_for_cpu"
    assert forward["addmm"] == LINEARS
    assert forward["native_layer_norm"] == NORMS
    assert forward["embedding"] == ["token_embedding", "position_embedding"]
    assert forward[attention] == ["blocks.0.attention", "blocks.1.attention"]
    assert forward["gelu"] == ["blocks.0", "blocks.1"]
    assert forward["arange"] == [""]

    assert Counter(backward["mm"]) == Counter(2 * LINEARS)
    assert Counter(backward["native_layer_norm_backward"]) == Counter(NORMS)
    assert Counter(backward["embedding_dense_backward"]) == Counter(forward["embedding"])
    assert backward[f"{attention}_backward"] == ["blocks.1.attention", "blocks.0.attention"]
    assert backward["gelu_backward"] == ["blocks.1", "blocks.0"]
    again = (1, 0) if recomputes else ()
    assert backward.get("gelu", []) == [f"blocks.{i}" for i in again]
    # Without re-entry it stops before the last product, whose output nobody needs again.
    layers_again = BLOCK_LAYERS if hooked else BLOCK_LAYERS[:-1]
    assert backward.get("addmm", []) == [f"blocks.{i}.{name}" for i in again for name in layers_again]


class Sandwich(nn.Module):
    """Nodes of its own right before and right after those of a child."""

    def __init__(self) -> None:
        super().__init__()
        self.child = nn.Sigmoid()

    def forward(self, x: Tensor) -> Any:
        return F.gelu(self.child(x.tanh()))


@pytest.mark.parametrize("input_needs_gradient", [False, True])
@pytest.mark.parametrize("hooked", [False, True])
def test_neighbouring_nodes_of_parent_and_child_are_told_apart(
    hooked: bool, input_needs_gradient: bool
) -> None:
    model = nn.Sequential(Sandwich(), nn.LayerNorm(2))
    if hooked:
        for module in model.modules():
            module.register_full_backward_hook(lambda *_: None)
    x = torch.ones(2, requires_grad=True)
    _, found = trained(model, x if input_needs_gradient else x * 2)
    assert found["tanh_backward"] == ["0"]
    assert found["sigmoid_backward"] == ["0.child"]
    assert found["gelu_backward"] == ["0"]
    assert found["native_layer_norm_backward"] == ["1"]


def test_hooks_of_embeddings_and_of_a_nested_model() -> None:
    _, found = trained(transformer(), IDS, GradSampleModule)
    assert Counter(found["scatter_add_"]) == Counter(["token_embedding", "position_embedding"])
    assert Counter(found["bmm"]) == Counter(LINEARS)
    assert Counter(found["mm"]) == Counter(2 * LINEARS)
    assert Counter(found["native_layer_norm"]) == Counter(NORMS)
    assert Counter(found["copy_"]) == Counter(
        2 * LINEARS + 2 * NORMS + ["token_embedding", "position_embedding"]
    )


def test_a_module_that_the_model_does_not_know_works_for_the_one_that_calls_it() -> None:
    stranger = nn.Sequential(nn.GELU())

    class Caller(nn.Module):
        def forward(self, x: Tensor) -> Any:
            return stranger(x)

    model = nn.Sequential(Caller())
    with Followed() as followed:
        followed.modules.name(model)
        model(torch.ones(2, requires_grad=True)).sum().backward()
        stranger(torch.ones(2))
    found = followed.taken()
    assert found["gelu"] == ["0", ""]
    assert found["gelu_backward"] == ["0"]


def test_a_shared_module_has_its_first_path() -> None:
    shared = nn.Linear(3, 3)
    forward, backward = trained(nn.Sequential(shared, nn.GELU(), shared), torch.ones(1, 3))
    assert forward["addmm"] == ["0", "0"]
    assert backward["mm"] == ["0", "0", "0"]


def test_each_outermost_call_is_surrounded_once_even_if_it_fails() -> None:
    log: list[str] = []

    @contextmanager
    def around() -> Iterator[None]:
        log.append("in")
        try:
            yield
        finally:
            log.append("out")

    class Fails(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise RuntimeError("fails")

    model = nn.Sequential(nn.Linear(3, 4), nn.Sequential(Fails()))
    with Followed(around) as followed:
        followed.modules.name(model)
        assert log == []
        with pytest.raises(RuntimeError, match="fails"):
            model(torch.ones(1, 3))
        assert log == ["in", "out"]
        assert followed.modules.current() == ""
        model[0](torch.ones(1, 3)).sum().backward()
    found = followed.taken()
    assert found["addmm"] == ["0", "0"]
    assert found["sum"] == ["", "0"], "of the loss, and of the bias in backward"
    model[0](torch.ones(1, 3))
    assert log == 2 * ["in", "out"]


def test_forwards_in_several_threads_are_told_as_far_as_they_agree() -> None:
    """In a new thread autograd numbers nodes from 0: those of the first calls have the same number."""
    model = nn.Sequential(nn.GELU(), nn.Sigmoid(), nn.Tanh())
    x = torch.ones(2, requires_grad=True)
    paths: list[str] = []
    with Followed() as followed, ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as other:
        followed.modules.name(model)
        model[1].register_forward_pre_hook(lambda *_: paths.append(followed.modules.current()))
        one.submit(lambda: model[2](model[0](x))).result()
        other.submit(lambda: model[2](model[1](x))).result().sum().backward()
    found = followed.taken()
    assert paths == ["1"]
    assert found["sigmoid_backward"] == [""]
    assert found["tanh_backward"] == ["2"]


def test_checkpointed_functions_within_a_module() -> None:
    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.GELU()

        def forward(self, x: Tensor) -> Any:
            return checkpoint(lambda y: self.inner(y.tanh()).sigmoid(), x, use_reentrant=True)

    model = nn.Sequential(Checkpointed(), nn.LayerNorm(2))
    forward, backward = trained(model, torch.ones(2, requires_grad=True))
    assert forward["tanh"] == forward["sigmoid"] == ["0"]
    assert forward["gelu"] == backward["gelu"] == backward["gelu_backward"] == ["0.inner"]
    assert backward["native_layer_norm_backward"] == ["1"]


def test_shapes_by_hand() -> None:
    model = nn.Sequential(nn.Conv2d(4, 6, 3, groups=2), nn.Flatten(), nn.Linear(6 * 4, 5, bias=False))
    model[0].weight.requires_grad_(False)
    with ModuleCalls(nullcontext) as calls:
        calls.name(model)
        calls.in_forward = True
        model(torch.randn(3, 4, 4, 4))
        found = calls.rows({"2.weight": NormCost("gram", 1, 2, 3, True)})
    convolution = LayerRow(
        "0", 3, 2, 4, 3, 2 * 9, is_convolution=True, weight="0.weight", weight_trains=False
    )
    linear = LayerRow("2", 3, 1, 1, 5, 6 * 4, weight="2.weight", bias_trains=False, is_booked=True)
    linear.norm, linear.norm_flops, linear.norm_bytes, linear.sum_flops = "gram", 1, 2, 3
    convolution.input_has_gradient = False
    assert found == [convolution, linear]


def test_a_checkpoint_is_seen_in_backward() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    with ModuleCalls(nullcontext) as calls:
        calls.name(model)
        calls.in_forward = True
        out = model[0](torch.randn(2, 3))
        out = checkpoint(model[1], out, use_reentrant=True)
        calls.in_forward = False
        out.sum().backward()
        first, second = calls.rows({})
    assert (first.is_recomputed, second.is_recomputed) == (False, True)
    assert second.input_has_gradient
