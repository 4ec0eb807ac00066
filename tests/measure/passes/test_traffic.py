"""The bytes that operators read and write, of what they pick or scatter only what is touched; and FLOPs."""

from collections.abc import Callable
from itertools import product
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from dpprof.measure.passes.traffic import bytes_moved, flops, footprint, operands, tensors_in


class Call(NamedTuple):
    operator: str
    read: int
    written: int
    flops: int


class Calls(TorchDispatchMode):
    """Notes the traffic of every operator called."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[Call] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        num_flops = flops(func, args, kwargs, result)
        name, tensors = func._overloadpacket.__name__, operands(func, args, kwargs, result)
        self.rows.append(Call(name, *bytes_moved(func, args, result, tensors), num_flops))
        return result


def calls(run: Callable[[], object]) -> list[Call]:
    noted = Calls()
    with noted:
        run()
    return noted.rows


def the_call(operator: str, run: Callable[[], object]) -> Call:
    """The one call of an operator; older torch passes a detach on twice, with the same tensors."""
    (found,) = {call for call in calls(run) if call.operator == operator}
    return found


A, B = torch.ones(3, 5), torch.ones(5, 7)
# Bytes of these.
SIZE_A, SIZE_B = 4 * 15, 4 * 35


def floats(*shape: int) -> Tensor:
    return torch.ones(*shape)


def indices(*values: int) -> Tensor:
    return torch.tensor(values)


SIX, FIFTY, TWELVE = (torch.zeros(shape, dtype=torch.int64) for shape in (6, 50, (2, 6)))
ONE = torch.tensor(1.0)


def table() -> Tensor:
    """Of 100 rows of 24 bytes."""
    return floats(100, 6)


def back(out: Tensor) -> None:
    out.backward(torch.ones_like(out))


def losses() -> Tensor:
    """Of six samples and fifty classes."""
    return F.cross_entropy(torch.ones(6, 50, requires_grad=True), SIX, reduction="none")


def normalised_and_back() -> None:
    back(nn.LayerNorm(5)(A.clone().requires_grad_()))


def embedded_and_back() -> None:
    back(F.embedding(indices(3, 9, 3), table().requires_grad_()))


# Operator, call, and the bytes that it reads and writes.
TRAFFIC: list[tuple[str, Callable[[], object], int, int]] = [
    # Operands are read and results written.
    ("add", lambda: A + A, 2 * SIZE_A, SIZE_A),
    ("add", lambda: A + 1, SIZE_A, SIZE_A),
    ("gt", lambda: A > 0, SIZE_A, 15),
    ("sum", lambda: A.sum(), SIZE_A, 4),
    ("cat", lambda: torch.cat([A, A, floats(1, 5)]), 2 * SIZE_A + 20, 2 * SIZE_A + 20),
    ("clone", lambda: A.clone(), SIZE_A, SIZE_A),
    ("_to_copy", lambda: A.double(), SIZE_A, 2 * SIZE_A),
    ("sort", lambda: A.sort(), SIZE_A, SIZE_A + 2 * SIZE_A),
    # Weight and bias, of 20 bytes each, and a mean and a deviation of each row, 12 bytes each.
    ("native_layer_norm", lambda: F.layer_norm(A, (5,), floats(5), floats(5)), SIZE_A + 40, SIZE_A + 24),
    ("native_layer_norm_backward", normalised_and_back, 2 * SIZE_A + 24 + 40, SIZE_A + 40),
    # Making or overwriting only writes.
    ("zeros", lambda: torch.zeros(3, 5), 0, SIZE_A),
    ("arange", lambda: torch.arange(10), 0, 80),
    ("zeros_like", lambda: torch.zeros_like(A), 0, SIZE_A),
    ("randint_like", lambda: torch.randint_like(A, 9), 0, SIZE_A),
    ("new_zeros", lambda: A.new_zeros(7), 0, 28),
    ("zero_", lambda: floats(3, 5).zero_(), 0, SIZE_A),
    ("fill_", lambda: floats(3, 5).fill_(2.0), 0, SIZE_A),
    ("normal_", lambda: floats(3, 5).normal_(), 0, SIZE_A),
    ("uniform_", lambda: floats(3, 5).uniform_(), 0, SIZE_A),
    ("random_", lambda: floats(3, 5).random_(), 0, SIZE_A),
    ("bernoulli_", lambda: floats(3, 5).bernoulli_(0.5), 0, SIZE_A),
    ("exponential_", lambda: floats(3, 5).exponential_(), 0, SIZE_A),
    ("_foreach_zero_", lambda: torch._foreach_zero_([floats(3, 5), floats(2)]), 0, SIZE_A + 8),
    # In-place operators read and write what they change.
    ("add_", lambda: floats(3, 5).add_(A), 2 * SIZE_A, SIZE_A),
    ("add_", lambda: floats(3, 5).add_(1), SIZE_A, SIZE_A),
    ("masked_fill_", lambda: floats(3, 5).masked_fill_(A > 0, 2.0), SIZE_A + 15, SIZE_A),
    ("_foreach_add_", lambda: torch._foreach_add_([floats(3, 5), ONE], [A, ONE]), 2 * SIZE_A + 8, SIZE_A + 4),
    # What is overwritten is not read.
    ("copy_", lambda: floats(3, 5).copy_(A), SIZE_A, SIZE_A),
    ("copy_", lambda: floats(3, 5).copy_(floats(5)), 20, SIZE_A),
    ("copy_", lambda: floats(3, 5)[:, 2].copy_(floats(3)), 12, 12),
    ("copy_", lambda: torch.zeros(3, 5, dtype=torch.float64).copy_(A), SIZE_A, 2 * SIZE_A),
    ("fill_", lambda: floats(3, 5).fill_(torch.tensor(2.0)), 4, SIZE_A),
    ("_foreach_copy_", lambda: torch._foreach_copy_([floats(3, 5), ONE], [A, ONE]), SIZE_A + 4, SIZE_A + 4),
    ("add", lambda: torch.add(A, A, out=floats(3, 5)), 2 * SIZE_A, SIZE_A),
    ("_foreach_neg", lambda: torch.ops.aten._foreach_neg.out([A], out=[floats(3, 5)]), SIZE_A, SIZE_A),
    ("sort", lambda: torch.sort(A, out=(floats(3, 5), indices(0))), SIZE_A, 3 * SIZE_A),
    # Views and memory that is not touched are free.
    ("view", lambda: A.view(15), 0, 0),
    ("expand", lambda: A.expand(9, 3, 5), 0, 0),
    ("slice", lambda: A[1:], 0, 0),
    ("as_strided", lambda: A.as_strided((2, 2), (1, 1)), 0, 0),
    ("split", lambda: A.split(1), 0, 0),
    ("detach", lambda: A.detach(), 0, 0),
    ("_unsafe_view", lambda: torch.ops.aten._unsafe_view(A, [15]), 0, 0),
    ("empty", lambda: torch.empty(3, 5), 0, 0),
    ("empty_like", lambda: torch.empty_like(A), 0, 0),
    ("empty_strided", lambda: torch.empty_strided((3, 5), (5, 1)), 0, 0),
    ("empty_permuted", lambda: torch.empty_permuted((3, 5), (1, 0)), 0, 0),
    ("new_empty", lambda: A.new_empty(3), 0, 0),
    ("new_empty_strided", lambda: A.new_empty_strided((3,), (1,)), 0, 0),
    ("resize_", lambda: floats(3).resize_(10), 0, 0),
    ("set_", lambda: floats(3).set_(floats(9)), 0, 0),  # type: ignore[call-overload]
    # Of an operand only the memory that it really has is read.
    ("add", lambda: floats(5).expand(3, 5) + 1, 20, SIZE_A),
    ("add", lambda: A + floats(5), SIZE_A + 20, SIZE_A),
    ("add", lambda: A[:, 1:3] + 1, 4 * 6, 4 * 6),
    # Asking for a number reads; empty operands move nothing.
    ("_local_scalar_dense", lambda: torch.tensor(1.0).item(), 4, 0),
    ("equal", lambda: torch.equal(A, A), 2 * SIZE_A, 0),
    ("add", lambda: torch.zeros(0, 5) + torch.zeros(5), 20, 0),
    ("index", lambda: A[torch.zeros(0, dtype=torch.int64)], 0, 0),
    ("cat", lambda: torch.cat([torch.zeros(0), floats(2)]), 8, 8),
    # Picking reads what is picked and the indices, and never more than there is.
    ("embedding", lambda: F.embedding(indices(3, 9, 3), table()), 3 * 24 + 3 * 8, 3 * 24),
    ("index_select", lambda: table().index_select(0, indices(3, 9, 3)), 3 * 24 + 3 * 8, 3 * 24),
    ("index", lambda: table()[indices(3, 9, 3)], 3 * 24 + 3 * 8, 3 * 24),
    ("gather", lambda: table().gather(0, indices(3, 9, 3).view(1, 3)), 3 * 4 + 3 * 8, 3 * 4),
    ("take", lambda: table().take(indices(3, 9, 3)), 3 * 4 + 3 * 8, 3 * 4),
    ("embedding", lambda: F.embedding(FIFTY, floats(2, 6)), 48 + 400, 50 * 24),
    ("nll_loss_forward", lambda: F.nll_loss(floats(6, 10), SIX), 6 * 4 + 6 * 8, 2 * 4),
    # Of six samples one logit each is picked, and all their gradients are written. The second result of the
    # loss is the sum of the classes' weights.
    ("_log_softmax", losses, 1200, 1200),
    ("nll_loss_forward", losses, 6 * 4 + 6 * 8, 6 * 4 + 4),
    ("nll_loss_backward", lambda: back(losses()), 6 * 4 + 6 * 8 + 4, 1200),
    ("_log_softmax_backward_data", lambda: back(losses()), 2 * 1200, 1200),
    # The gradient of an embedding is written whole.
    ("embedding_dense_backward", embedded_and_back, 3 * 24 + 3 * 8, 100 * 24),
    # Scattering writes what is changed, at most all there is; out of place it copies the whole. What is added
    # to is read, too.
    ("index_put_", lambda: table().index_put_((indices(3, 9),), floats(2, 6)), 48 + 16, 48),
    ("index_put_", lambda: table().index_put_((indices(3, 9),), floats(2, 6), accumulate=True), 96 + 16, 48),
    ("index_add_", lambda: table().index_add_(0, indices(3, 9), floats(2, 6)), 96 + 16, 48),
    ("index_copy_", lambda: table().index_copy_(0, indices(3, 9), floats(2, 6)), 48 + 16, 48),
    ("scatter_", lambda: table().scatter_(0, TWELVE, floats(2, 6)), 48 + 96, 48),
    ("scatter_add_", lambda: table().scatter_add_(0, TWELVE, floats(2, 6)), 96 + 96, 48),
    ("scatter_reduce_", lambda: table().scatter_reduce_(0, TWELVE, floats(2, 6), "sum"), 96 + 96, 48),
    # A value that is broadcast is read once, and written wherever it goes.
    ("scatter_", lambda: table().scatter_(1, torch.zeros(8, 1, dtype=torch.int64), 1.0), 8 * 8, 8 * 4),
    ("index_put_", lambda: table().index_put_((indices(1, 3),), ONE), 16 + 4, 48),
    ("index_put_", lambda: table().index_put_((indices(1, 3), indices(0, 0)), ONE), 2 * 16 + 4, 2 * 4),
    ("index_put_", lambda: table().index_put_((table() > 0,), ONE), 100 * 6 + 4, 100 * 24),
    ("gather", lambda: torch.gather(table(), 0, indices(1, 1).view(2, 1), out=floats(2, 1)), 8 + 16, 8),
    ("index_add_", lambda: floats(2, 6).index_add_(0, FIFTY, floats(50, 6)), 50 * (24 + 8) + 48, 2 * 24),
    ("index_add", lambda: table().index_add(0, indices(3, 9), floats(2, 6)), 2400 + 16 + 48, 2400),
]


# A multiplication and an addition are two operations.
A4, B4 = torch.ones(4, 3, 5), torch.ones(4, 5, 7)
AB, PRODUCT = SIZE_A + SIZE_B, 2 * 3 * 5 * 7
PRODUCTS: list[tuple[str, Callable[[], object], int, int, int]] = [
    ("mm", lambda: A @ B, AB, 84, PRODUCT),
    ("mm", lambda: torch.mm(A, B, out=floats(3, 7)), AB, 84, PRODUCT),
    ("addmm", lambda: torch.addmm(floats(7), A, B), 28 + AB, 84, PRODUCT),
    ("addmm", lambda: F.linear(floats(2, 4, 5), floats(7, 5), floats(7)), 160 + 140 + 28, 224, 16 * 35),
    ("addmm_", lambda: floats(3, 7).addmm_(A, B), AB + 84, 84, PRODUCT),
    ("bmm", lambda: A4.bmm(B4), 4 * AB, 4 * 84, 4 * PRODUCT),
    ("baddbmm", lambda: torch.baddbmm(floats(7), A4, B4), 28 + 4 * AB, 4 * 84, 4 * PRODUCT),
    ("baddbmm_", lambda: floats(4, 3, 7).baddbmm_(A4, B4), 4 * (AB + 84), 4 * 84, 4 * PRODUCT),
    ("mv", lambda: A @ floats(5), SIZE_A + 20, 12, 30),
    ("addmv", lambda: torch.addmv(floats(3), A, floats(5), beta=2), 12 + SIZE_A + 20, 12, 30),
    ("addmv_", lambda: floats(3).addmv_(A, floats(5)), 12 + SIZE_A + 20, 12, 30),
    ("dot", lambda: floats(5) @ floats(5), 40, 4, 10),
    (
        "_scaled_dot_product_flash_attention_for_cpu",
        lambda: F.scaled_dot_product_attention(floats(2, 3, 4, 8), floats(2, 3, 16, 8), floats(2, 3, 16, 8)),
        4 * 6 * (4 + 16 + 16) * 8,
        4 * 6 * 4 * 8 + 4 * 6 * 4,  # the output, and the logarithm of each query's sum
        2 * (2 * 6 * 4 * 16 * 8),
    ),
    # Two samples of three channels and ten positions; four filters of three by three have eight results.
    ("convolution", lambda: F.conv1d(floats(2, 3, 10), floats(4, 3, 3)), 240 + 144, 2 * 32 * 4, 2 * 64 * 9),
]


@pytest.mark.parametrize(
    ("operator", "run", "read", "written", "num_flops"), [*((*row, 0) for row in TRAFFIC), *PRODUCTS]
)
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_traffic_and_flops_by_arithmetic(
    operator: str, run: Callable[[], object], read: int, written: int, num_flops: int
) -> None:
    assert the_call(operator, run) == Call(operator, read, written, num_flops)


@pytest.mark.filterwarnings("ignore:Sparse")
def test_sparse_operands_count_nothing() -> None:
    found = calls(lambda: torch.sparse.mm(torch.eye(4).to_sparse(), floats(4, 3)).sum())
    assert {call.operator: (call.read, call.written) for call in found}["sum"] == (48, 4)
    table = torch.ones(10, 4, requires_grad=True)
    calls(lambda: F.embedding(indices(1, 2), table, sparse=True).sum().backward())
    assert table.grad is not None
    assert footprint(table.grad) == 0


def test_tensors_in_nested_lists() -> None:
    a, b, c = floats(1), floats(2), floats(3)
    found = list(tensors_in([a, 1, None, [b, "x", (c,)], {"not": "here"}]))
    assert [t.numel() for t in found] == [1, 2, 3]


VIEWS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "expand": lambda t, n: t.expand(n, *t.shape),
    "slice": lambda t, n: t[n % 3 :: n % 2 + 1],
    "select": lambda t, n: t.select(-1, n % t.shape[-1]) if t.dim() > 1 and t.shape[-1] else t,
    "narrow": lambda t, n: t[..., : n + 1],
    "transpose": lambda t, n: t.transpose(0, -1),
    "unsqueeze": lambda t, n: t.unsqueeze(-1),
    "squeeze": lambda t, n: t.squeeze(-1) if t.dim() > 1 else t,
}


@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=3),
    st.lists(st.tuples(st.sampled_from(sorted(VIEWS)), st.integers(0, 4)), max_size=4),
    st.sampled_from([torch.float32, torch.float64, torch.bfloat16, torch.int8]),
)
def test_the_footprint_of_any_view_is_that_of_its_distinct_elements(
    shape: list[int], views: list[tuple[str, int]], dtype: torch.dtype
) -> None:
    tensor = torch.zeros(shape, dtype=dtype)
    for name, number in views:
        tensor = VIEWS[name](tensor, number)
    places = {
        sum(i * stride for i, stride in zip(where, tensor.stride(), strict=True))
        for where in product(*(range(size) for size in tensor.shape))
    }
    assert footprint(tensor) == len(places) * dtype.itemsize


def test_the_footprint_of_overlapping_windows_is_at_most_the_storage() -> None:
    windows = floats(10).unfold(0, 4, 1)
    assert windows.numel() == 28
    assert footprint(windows) == 40
    assert footprint(floats(5).expand(0, 5)) == 0


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
