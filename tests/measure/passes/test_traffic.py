"""The bytes that operators read and write; of what they pick or scatter only what is touched."""

from collections.abc import Callable
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from operator_calls import SIZE_A, SIZE_B, A, B, calls, floats, indices, moved
from torch import Tensor, nn

from dpprof.measure.passes.traffic import footprint, tensors_in

FIFTY, TWELVE = torch.zeros(50, dtype=torch.int64), torch.zeros(2, 6, dtype=torch.int64)
ONE = torch.tensor(1.0)


def table() -> Tensor:
    """Of 100 rows of 24 bytes."""
    return floats(100, 6)


# Operator, call, and the bytes that it reads and writes.
TRAFFIC: list[tuple[str, Callable[[], object], int, int]] = [
    # Operands are read and results written.
    ("mm", lambda: A @ B, SIZE_A + SIZE_B, 4 * 21),
    ("addmm", lambda: torch.addmm(floats(7), A, B), 4 * 7 + SIZE_A + SIZE_B, 4 * 21),
    ("bmm", lambda: floats(2, 3, 5).bmm(floats(2, 5, 7)), 2 * (SIZE_A + SIZE_B), 2 * 4 * 21),
    ("mv", lambda: A @ floats(5), SIZE_A + 20, 12),
    ("add", lambda: A + A, 2 * SIZE_A, SIZE_A),
    ("add", lambda: A + 1, SIZE_A, SIZE_A),
    ("gt", lambda: A > 0, SIZE_A, 15),
    ("where", lambda: torch.where(A > 0, A, A), 15 + 2 * SIZE_A, SIZE_A),
    ("sum", lambda: A.sum(), SIZE_A, 4),
    ("sum", lambda: A.sum(dim=1), SIZE_A, 12),
    ("amax", lambda: A.amax(dim=0), SIZE_A, 20),
    ("cat", lambda: torch.cat([A, A, floats(1, 5)]), 2 * SIZE_A + 20, 2 * SIZE_A + 20),
    ("clone", lambda: A.clone(), SIZE_A, SIZE_A),
    ("clone", lambda: A.t().contiguous(), SIZE_A, SIZE_A),
    ("_to_copy", lambda: A.double(), SIZE_A, 2 * SIZE_A),
    ("relu", lambda: A.relu(), SIZE_A, SIZE_A),
    ("_softmax", lambda: A.softmax(dim=1), SIZE_A, SIZE_A),
    ("sort", lambda: A.sort(), SIZE_A, SIZE_A + 2 * SIZE_A),
    ("native_layer_norm", lambda: F.layer_norm(A, (5,)), SIZE_A, SIZE_A + 2 * 4 * 3),
    (
        "native_layer_norm",
        lambda: F.layer_norm(A, (5,), floats(5), floats(5)),
        SIZE_A + 2 * 20,
        SIZE_A + 2 * 4 * 3,
    ),
    (
        "convolution",
        lambda: F.conv1d(floats(2, 3, 10), floats(4, 3, 3), floats(4)),
        4 * (60 + 36 + 4),
        4 * 2 * 4 * 8,
    ),
    # Making or overwriting only writes.
    ("zeros", lambda: torch.zeros(3, 5), 0, SIZE_A),
    ("ones", lambda: torch.ones(3, 5), 0, SIZE_A),
    ("full", lambda: torch.full((3, 5), 2.0), 0, SIZE_A),
    ("arange", lambda: torch.arange(10), 0, 80),
    ("randn", lambda: torch.randn(3, 5), 0, SIZE_A),
    ("zeros_like", lambda: torch.zeros_like(A), 0, SIZE_A),
    ("ones_like", lambda: torch.ones_like(A), 0, SIZE_A),
    ("full_like", lambda: torch.full_like(A, 2.0), 0, SIZE_A),
    ("rand_like", lambda: torch.rand_like(A), 0, SIZE_A),
    ("randn_like", lambda: torch.randn_like(A), 0, SIZE_A),
    ("randint_like", lambda: torch.randint_like(A, 9), 0, SIZE_A),
    ("new_zeros", lambda: A.new_zeros(7), 0, 28),
    ("new_ones", lambda: A.new_ones(7), 0, 28),
    ("new_full", lambda: A.new_full((7,), 2.0), 0, 28),
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
    ("relu_", lambda: floats(3, 5).relu_(), SIZE_A, SIZE_A),
    ("addmm_", lambda: floats(3, 7).addmm_(A, B), SIZE_A + SIZE_B + 4 * 21, 4 * 21),
    ("masked_fill_", lambda: floats(3, 5).masked_fill_(A > 0, 2.0), SIZE_A + 15, SIZE_A),
    ("addcmul_", lambda: floats(3, 5).addcmul_(A, A), 3 * SIZE_A, SIZE_A),
    (
        "_foreach_add_",
        lambda: torch._foreach_add_([floats(3, 5), floats(2)], [A, floats(2)]),
        2 * (SIZE_A + 8),
        SIZE_A + 8,
    ),
    ("_foreach_mul_", lambda: torch._foreach_mul_([floats(3, 5), floats(2)], 2.0), SIZE_A + 8, SIZE_A + 8),
    # What is overwritten is not read.
    ("copy_", lambda: floats(3, 5).copy_(A), SIZE_A, SIZE_A),
    ("copy_", lambda: floats(3, 5).copy_(floats(5)), 20, SIZE_A),
    ("copy_", lambda: floats(3, 5)[:, 2].copy_(floats(3)), 12, 12),
    ("copy_", lambda: torch.zeros(3, 5, dtype=torch.float64).copy_(A), SIZE_A, 2 * SIZE_A),
    ("fill_", lambda: floats(3, 5).fill_(torch.tensor(2.0)), 4, SIZE_A),
    (
        "_foreach_copy_",
        lambda: torch._foreach_copy_([floats(3, 5), floats(2)], [A, floats(2)]),
        SIZE_A + 8,
        SIZE_A + 8,
    ),
    ("mm", lambda: torch.mm(A, B, out=floats(3, 7)), SIZE_A + SIZE_B, 4 * 21),
    ("add", lambda: torch.add(A, A, out=floats(3, 5)), 2 * SIZE_A, SIZE_A),
    ("cat", lambda: torch.cat([A, A], out=floats(6, 5)), 2 * SIZE_A, 2 * SIZE_A),
    ("_foreach_neg", lambda: torch.ops.aten._foreach_neg.out([A], out=[floats(3, 5)]), SIZE_A, SIZE_A),
    ("sort", lambda: torch.sort(A, out=(floats(3, 5), indices(0))), SIZE_A, 3 * SIZE_A),
    # Views and memory that is not touched are free.
    ("view", lambda: A.view(15), 0, 0),
    ("t", lambda: A.t(), 0, 0),
    ("transpose", lambda: A.transpose(0, 1), 0, 0),
    ("permute", lambda: A.permute(1, 0), 0, 0),
    ("expand", lambda: A.expand(9, 3, 5), 0, 0),
    ("slice", lambda: A[1:], 0, 0),
    ("select", lambda: A[1], 0, 0),
    ("unsqueeze", lambda: A.unsqueeze(0), 0, 0),
    ("squeeze", lambda: A.squeeze(), 0, 0),
    ("as_strided", lambda: A.as_strided((2, 2), (1, 1)), 0, 0),
    ("split", lambda: A.split(1), 0, 0),
    ("unbind", lambda: A.unbind(), 0, 0),
    ("detach", lambda: A.detach(), 0, 0),
    ("alias", lambda: torch.ops.aten.alias(A), 0, 0),
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
    ("add", lambda: floats(1).expand(3, 5) + 1, 4, SIZE_A),
    ("add", lambda: floats(3, 1).expand(3, 5) + 1, 12, SIZE_A),
    ("add", lambda: A + floats(5), SIZE_A + 20, SIZE_A),
    ("add", lambda: A[:, 1:3] + 1, 4 * 6, 4 * 6),
    ("add", lambda: A.t() + 1, SIZE_A, SIZE_A),
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
    (
        "nll_loss_forward",
        lambda: F.nll_loss(floats(6, 10), torch.zeros(6, dtype=torch.int64)),
        6 * 4 + 6 * 8,
        2 * 4,
    ),
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
    (
        "index_add_",
        lambda: floats(2, 6).index_add_(0, FIFTY, floats(50, 6)),
        50 * 24 + 50 * 8 + 2 * 24,
        2 * 24,
    ),
    (
        "index_add",
        lambda: table().index_add(0, indices(3, 9), floats(2, 6)),
        100 * 24 + 2 * 8 + 2 * 24,
        100 * 24,
    ),
]


@pytest.mark.parametrize(("operator", "run", "read", "written"), TRAFFIC)
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_traffic_by_arithmetic(operator: str, run: Callable[[], object], read: int, written: int) -> None:
    assert moved(operator, run) == (read, written)


@pytest.mark.parametrize(
    ("dtype", "size"),
    [(torch.bfloat16, 2), (torch.float16, 2), (torch.float64, 8), (torch.int8, 1), (torch.complex64, 8)],
)
def test_bytes_are_those_of_the_element_type(dtype: torch.dtype, size: int) -> None:
    a = torch.ones(3, 5, dtype=dtype)
    assert moved("add", lambda: a + a) == (2 * 15 * size, 15 * size)
    assert moved("zeros", lambda: torch.zeros(4, dtype=dtype)) == (0, 4 * size)


def test_layer_norm_backward_reads_input_and_statistics() -> None:
    x, norm = torch.ones(3, 5, requires_grad=True), nn.LayerNorm(5)
    out = norm(x)
    found = moved("native_layer_norm_backward", lambda: out.backward(torch.ones_like(out)))
    assert found == (2 * SIZE_A + 2 * 12 + 2 * 20, SIZE_A + 2 * 20)


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


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=3),
    st.lists(st.tuples(st.sampled_from(sorted(VIEWS)), st.integers(0, 4)), max_size=4),
    st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
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


def test_the_gradient_of_an_embedding_is_written_whole() -> None:
    table = torch.ones(100, 6, requires_grad=True)
    out = F.embedding(indices(3, 9, 3), table)
    found = moved("embedding_dense_backward", lambda: out.backward(torch.ones_like(out)))
    assert found == (3 * 24 + 3 * 8, 100 * 24)


def test_cross_entropy_picks_one_logit_of_each_sample_and_writes_all_their_gradients() -> None:
    n, c = 6, 50
    logits, labels = torch.ones(n, c, requires_grad=True), torch.zeros(n, dtype=torch.int64)
    losses: list[Tensor] = []
    forward = {
        call.operator: (call.read, call.written)
        for call in calls(lambda: losses.append(F.cross_entropy(logits, labels, reduction="none")))
    }
    assert forward["_log_softmax"] == (4 * n * c, 4 * n * c)
    # The second result is the sum of the classes' weights.
    assert forward["nll_loss_forward"] == (4 * n + 8 * n, 4 * n + 4)
    backward = {
        call.operator: (call.read, call.written) for call in calls(lambda: losses[0].backward(floats(n)))
    }
    assert backward["nll_loss_backward"] == (4 * n + 8 * n + 4, 4 * n * c)
    assert backward["_log_softmax_backward_data"] == (2 * 4 * n * c, 4 * n * c)
