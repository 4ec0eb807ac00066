"""Which module an operator works for, in forward, in backward and in hooks."""

from collections import Counter

import pytest
import torch
import torch.nn.functional as F
from followed_modules import BLOCK_LAYERS, IDS, LINEARS, NORMS, Followed, layers, transformer
from opacus.grad_sample import GradSampleModule
from torch import Tensor, nn


def test_in_forward_an_operator_works_for_the_innermost_module_being_called() -> None:
    model = layers()
    with Followed() as followed:
        followed.modules.name(model)
        model(torch.ones(5, 3)).sum()
    found = followed.taken()
    assert found["addmm"] == ["0", "3"]
    assert found["gelu"] == ["1"]
    assert found["native_layer_norm"] == ["2"]
    assert found["sum"] == [""]


def test_in_backward_it_works_for_the_module_whose_forward_made_the_node() -> None:
    model = layers()
    with Followed() as followed:
        followed.modules.name(model)
        loss = model(torch.ones(5, 3)).sum()
        followed.taken()
        loss.backward()
    found = followed.taken()
    # The last layer's two products, the first's one: its input needs no gradient.
    assert found["mm"] == ["3", "3", "0"]
    assert found["native_layer_norm_backward"] == ["2"]
    assert found["gelu_backward"] == ["1"]
    assert found["ones_like"] == [""]


def test_a_second_backward_through_the_same_graph_is_told_alike() -> None:
    model = layers()
    with Followed() as followed:
        followed.modules.name(model)
        loss = model(torch.ones(5, 3)).sum()
        followed.taken()
        loss.backward(retain_graph=True)
        first = followed.taken()
        loss.backward()
    assert followed.taken()["mm"] == first["mm"] == ["3", "3", "0"]


def test_nested_modules_in_forward_and_backward() -> None:
    model = transformer()
    with Followed() as followed:
        followed.modules.name(model)
        loss = model(IDS).sum()
        forward = followed.taken()
        loss.backward()
    backward = followed.taken()
    assert forward["addmm"] == LINEARS
    assert forward["native_layer_norm"] == NORMS
    assert forward["embedding"] == ["token_embedding", "position_embedding"]
    assert forward["_scaled_dot_product_flash_attention_for_cpu"] == [
        "blocks.0.attention",
        "blocks.1.attention",
    ]
    assert forward["gelu"] == ["blocks.0", "blocks.1"]
    assert forward["arange"] == [""]

    assert Counter(backward["mm"]) == Counter(2 * LINEARS)
    assert Counter(backward["native_layer_norm_backward"]) == Counter(NORMS)
    assert Counter(backward["embedding_dense_backward"]) == Counter(forward["embedding"])
    assert backward["_scaled_dot_product_flash_attention_for_cpu_backward"] == [
        "blocks.1.attention",
        "blocks.0.attention",
    ]
    assert backward["gelu_backward"] == ["blocks.1", "blocks.0"]


class Sandwich(nn.Module):
    """Nodes of its own right before and right after those of a child."""

    def __init__(self) -> None:
        super().__init__()
        self.child = nn.Sigmoid()

    def forward(self, x: Tensor) -> Tensor:
        """Any shape."""
        out: Tensor = F.gelu(self.child(x.tanh()))
        return out


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
    with Followed() as followed:
        followed.modules.name(model)
        loss = model(x if input_needs_gradient else x * 2).sum()
        loss.backward()
    found = followed.taken()
    assert found["tanh_backward"] == ["0"]
    assert found["sigmoid_backward"] == ["0.child"]
    assert found["gelu_backward"] == ["0"]
    assert found["native_layer_norm_backward"] == ["1"]


def test_work_in_backward_hooks_is_the_layers_own_even_where_no_input_needs_a_gradient() -> None:
    model = layers()
    with Followed() as followed:
        wrapped = GradSampleModule(model)
        followed.modules.name(model)
        loss = wrapped(torch.ones(5, 3)).sum()
        followed.taken()
        loss.backward()
    found = followed.taken()
    assert found["mm"] == ["3", "3", "0"]
    # Each layer's two per-sample gradients, of weight and bias, are copied to a buffer.
    assert Counter(found["copy_"]) == Counter(2 * ["3", "2", "0"])
    assert found["gelu_backward"] == ["1"]


def test_hooks_of_embeddings_and_of_a_nested_model() -> None:
    model = transformer()
    with Followed() as followed:
        wrapped = GradSampleModule(model)
        followed.modules.name(model)
        loss = wrapped(IDS).sum()
        followed.taken()
        loss.backward()
    found = followed.taken()
    assert Counter(found["scatter_add_"]) == Counter(["token_embedding", "position_embedding"])
    assert Counter(found["bmm"]) == Counter(LINEARS)
    assert Counter(found["mm"]) == Counter(2 * LINEARS)
    assert Counter(found["native_layer_norm"]) == Counter(NORMS)
    assert Counter(found["copy_"]) == Counter(
        2 * LINEARS + 2 * NORMS + ["token_embedding", "position_embedding"]
    )


@pytest.mark.parametrize("hooked", [False, True])
def test_recomputation_in_backward_works_for_the_same_modules(hooked: bool) -> None:
    model = transformer(activation_checkpointing=True)
    in_blocks = [path for path in LINEARS if path.startswith("blocks")]
    with Followed() as followed:
        called = GradSampleModule(model) if hooked else model
        followed.modules.name(model)
        loss = called(IDS).sum()
        forward = followed.taken()
        loss.backward()
    backward = followed.taken()
    assert forward["addmm"] == LINEARS
    assert backward["addmm"] == [f"blocks.{i}.{name}" for i in (1, 0) for name in BLOCK_LAYERS]
    assert set(backward["addmm"]) == set(in_blocks)
    assert Counter(backward["mm"]) == Counter(2 * LINEARS)
    assert backward["gelu"] == backward["gelu_backward"] == ["blocks.1", "blocks.0"]
    assert Counter(backward["native_layer_norm_backward"]) == Counter(NORMS)
    assert Counter(backward["embedding_dense_backward"]) == Counter(forward["embedding"])


def test_what_accumulates_a_parameters_gradient_works_for_no_module() -> None:
    model = nn.Sequential(nn.Linear(3, 4))
    with Followed() as followed:
        followed.modules.name(model)
        for _ in range(2):
            followed.taken()
            model(torch.ones(5, 3)).sum().backward()
    assert followed.taken()["add_"] == ["", ""]


def test_a_module_that_the_model_does_not_know_works_for_the_one_that_calls_it() -> None:
    stranger = nn.Sequential(nn.GELU())

    class Caller(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = stranger(x)
            return out

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
    model = nn.Sequential(shared, nn.GELU(), shared)
    with Followed() as followed:
        followed.modules.name(model)
        model(torch.ones(1, 3)).sum().backward()
    found = followed.taken()
    assert found["addmm"] == ["0", "0"]
    assert found["mm"] == ["0", "0", "0"]


def test_names_and_calls_are_forgotten_when_names_are_given_anew() -> None:
    first, second = layers(), nn.Sequential(nn.Sequential(nn.Linear(3, 4)))
    with Followed() as followed:
        followed.modules.name(first)
        loss = first(torch.ones(5, 3)).sum()
        followed.modules.name(second)
        followed.taken()
        loss.backward()
        first(torch.ones(5, 3))
        second(torch.ones(5, 3))
    found = followed.taken()
    assert set(found["mm"]) == {""}
    assert found["addmm"] == ["", "", "0.0"]
