"""Floating-point operations, by arithmetic, of operators and of whole steps."""

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from operator_calls import Call, calls, floats, the_call
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from dpprof.measure.passes.traffic import flops
from dpprof.measure.workloads.transformer import SimpleBigModel, sequence_loss

M, N, K = 3, 5, 7


@pytest.mark.parametrize(
    ("operator", "run", "expected"),
    [
        ("mm", lambda: floats(M, K) @ floats(K, N), 2 * M * N * K),
        ("addmm", lambda: F.linear(floats(M, K), floats(N, K), floats(N)), 2 * M * N * K),
        ("addmm", lambda: F.linear(floats(2, 4, K), floats(N, K), floats(N)), 8 * 2 * N * K),
        ("bmm", lambda: floats(4, M, K) @ floats(4, K, N), 4 * 2 * M * N * K),
        ("baddbmm", lambda: torch.baddbmm(floats(N), floats(4, M, K), floats(4, K, N)), 4 * 2 * M * N * K),
        ("mm", lambda: torch.mm(floats(M, K), floats(K, N), out=floats(M, N)), 2 * M * N * K),
        ("mv", lambda: floats(M, K) @ floats(K), 2 * M * K),
        ("addmv", lambda: torch.addmv(floats(M), floats(M, K), floats(K), beta=2), 2 * M * K),
        ("dot", lambda: floats(K) @ floats(K), 2 * K),
        ("addmm_", lambda: floats(M, N).addmm_(floats(M, K), floats(K, N)), 2 * M * N * K),
        ("baddbmm_", lambda: floats(4, M, N).baddbmm_(floats(4, M, K), floats(4, K, N)), 4 * 2 * M * N * K),
        ("addmv_", lambda: floats(M).addmv_(floats(M, K), floats(K)), 2 * M * K),
        ("convolution", lambda: F.conv1d(floats(2, 3, 10), floats(4, 3, 3)), 2 * 2 * 8 * 4 * 3 * 3),
        ("add", lambda: floats(M) + 1, 0),
        ("_softmax", lambda: floats(M).softmax(0), 0),
    ],
)
def test_a_multiplication_and_an_addition_are_two_operations(
    operator: str, run: Callable[[], object], expected: int
) -> None:
    assert the_call(operator, run).flops == expected


@pytest.mark.parametrize("causal", [False, True])
def test_fused_attention_is_two_products_forward_and_five_backward(causal: bool) -> None:
    b, h, t, k = 2, 3, 8, 4
    query, key, value = (torch.ones(b, h, t, k, requires_grad=True) for _ in range(3))
    found = calls(
        lambda: F.scaled_dot_product_attention(query, key, value, is_causal=causal).sum().backward()
    )
    forward, backward = (call for call in found if call.flops)
    one_product = 2 * b * h * t * t * k
    assert forward.operator == "_scaled_dot_product_flash_attention_for_cpu"
    assert forward.flops == 2 * one_product
    assert backward.operator == "_scaled_dot_product_flash_attention_for_cpu_backward"
    assert backward.flops == 5 * one_product


def test_attention_of_few_queries_over_many_keys() -> None:
    b, h, t, s, k = 2, 3, 4, 16, 8
    query, key, value = floats(b, h, t, k), floats(b, h, s, k), floats(b, h, s, k)
    found = the_call(
        "_scaled_dot_product_flash_attention_for_cpu",
        lambda: F.scaled_dot_product_attention(query, key, value),
    )
    assert found.flops == 2 * (2 * b * h * t * s * k)
    # Written: the output, and the logarithm of each query's sum.
    assert (found.read, found.written) == (4 * b * h * (t + s + s) * k, 4 * b * h * t * k + 4 * b * h * t)


BATCH, LENGTH, WIDTH, HEADS, LAYERS, VOCABULARY = 2, 6, 8, 2, 3, 11


def training_step() -> tuple[list[Call], list[Call]]:
    """The calls of a transformer's forward and backward."""
    model = SimpleBigModel(
        vocab_size=VOCABULARY, hidden_dim=WIDTH, num_layers=LAYERS, num_heads=HEADS, max_seq_len=LENGTH
    )
    ids = torch.zeros(BATCH, LENGTH, dtype=torch.int64)
    losses: list[Tensor] = []
    forward = calls(lambda: losses.append(sequence_loss(model(ids), ids).mean()))
    return forward, calls(lambda: losses[0].backward())


def test_a_transformers_operations_are_those_of_the_textbook() -> None:
    forward, backward = training_step()
    tokens = BATCH * LENGTH
    # Four square matrices of attention, two of the MLP that are four times as large.
    linear = 2 * tokens * (LAYERS * (4 + 2 * 4) * WIDTH**2 + WIDTH * VOCABULARY)
    attention = LAYERS * 2 * (2 * BATCH * LENGTH**2 * WIDTH)
    assert sum(call.flops for call in forward) == linear + attention
    assert sum(call.flops for call in backward) == 2 * linear + attention * 5 // 2


def test_fake_tensors_move_as_much_as_real_ones() -> None:
    with FakeTensorMode():
        fake = training_step()
    real = training_step()
    for fake_calls, real_calls in zip(fake, real, strict=True):
        assert moving(fake_calls) == moving(real_calls)
        assert math.fsum(call.written for call in real_calls) > 0


def moving(found: list[Call]) -> list[Call]:
    return [call for call in found if call[1:] != (0, 0, 0)]


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("projected", [False, True])
def test_an_lstms_flops_are_its_gates_products(bidirectional: bool, projected: bool) -> None:
    """Fused (oneDNN) and, with a projection, made of single products."""
    steps, batch, width, hidden, out = 5, 3, 7, 11, 4 if projected else 11
    layer = nn.LSTM(width, hidden, num_layers=2, bidirectional=bidirectional, proj_size=4 if projected else 0)
    directions = 2 if bidirectional else 1
    per_step = [4 * hidden * (given + out) for given in (width, directions * out)]
    per_step = [products + (hidden * out if projected else 0) for products in per_step]
    forward = 2 * sum(per_step) * directions * steps * batch
    inputs = torch.randn(steps, batch, width, requires_grad=True)
    state = tuple(torch.randn(2 * directions, batch, n, requires_grad=True) for n in (out, hidden))
    made: list[Tensor] = []
    assert sum(call.flops for call in calls(lambda: made.append(layer(inputs, state)[0]))) == forward
    backward = calls(lambda: made[0].sum().backward())
    assert sum(call.flops for call in backward) == 2 * forward
    assert any(call.operator.startswith("mkldnn_rnn") for call in backward) is not projected


def test_cudnns_recurrent_layers_count_all_matrices() -> None:
    steps, batch, width, hidden = 5, 3, 7, 11
    layer = nn.LSTM(width, hidden, num_layers=2, batch_first=True)
    products = 2 * steps * batch * 4 * hidden * (width + hidden + hidden + hidden)
    given = (torch.empty(batch, steps, width), list(layer.parameters()), 4)
    assert flops(torch.ops.aten._cudnn_rnn.default, given, {}, None) == products
    assert flops(torch.ops.aten._cudnn_rnn_backward.default, given, {}, None) == 2 * products
