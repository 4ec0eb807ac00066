"""The bytes that operators read and write."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from operator_calls import SIZE_A, SIZE_B, A, B, calls, floats, indices, moved
from torch import Tensor, nn

from dpprof.measure.passes.traffic import footprint


@pytest.mark.parametrize(
    ("operator", "run", "read", "written"),
    [
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
    ],
)
def test_operands_are_read_and_results_written(
    operator: str, run: Callable[[], object], read: int, written: int
) -> None:
    assert moved(operator, run) == (read, written)


@pytest.mark.parametrize(
    ("operator", "run", "written"),
    [
        ("zeros", lambda: torch.zeros(3, 5), SIZE_A),
        ("ones", lambda: torch.ones(3, 5), SIZE_A),
        ("full", lambda: torch.full((3, 5), 2.0), SIZE_A),
        ("arange", lambda: torch.arange(10), 80),
        ("randn", lambda: torch.randn(3, 5), SIZE_A),
        ("zeros_like", lambda: torch.zeros_like(A), SIZE_A),
        ("ones_like", lambda: torch.ones_like(A), SIZE_A),
        ("full_like", lambda: torch.full_like(A, 2.0), SIZE_A),
        ("rand_like", lambda: torch.rand_like(A), SIZE_A),
        ("randn_like", lambda: torch.randn_like(A), SIZE_A),
        ("randint_like", lambda: torch.randint_like(A, 9), SIZE_A),
        ("new_zeros", lambda: A.new_zeros(7), 28),
        ("new_ones", lambda: A.new_ones(7), 28),
        ("new_full", lambda: A.new_full((7,), 2.0), 28),
        ("zero_", lambda: floats(3, 5).zero_(), SIZE_A),
        ("fill_", lambda: floats(3, 5).fill_(2.0), SIZE_A),
        ("normal_", lambda: floats(3, 5).normal_(), SIZE_A),
        ("uniform_", lambda: floats(3, 5).uniform_(), SIZE_A),
        ("random_", lambda: floats(3, 5).random_(), SIZE_A),
        ("bernoulli_", lambda: floats(3, 5).bernoulli_(0.5), SIZE_A),
        ("exponential_", lambda: floats(3, 5).exponential_(), SIZE_A),
        ("_foreach_zero_", lambda: torch._foreach_zero_([floats(3, 5), floats(2)]), SIZE_A + 8),
    ],
)
def test_making_or_overwriting_only_writes(operator: str, run: Callable[[], object], written: int) -> None:
    assert moved(operator, run) == (0, written)


@pytest.mark.parametrize(
    ("operator", "run", "read", "written"),
    [
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
        (
            "_foreach_mul_",
            lambda: torch._foreach_mul_([floats(3, 5), floats(2)], 2.0),
            SIZE_A + 8,
            SIZE_A + 8,
        ),
    ],
)
def test_in_place_operators_read_and_write_what_they_change(
    operator: str, run: Callable[[], object], read: int, written: int
) -> None:
    assert moved(operator, run) == (read, written)


@pytest.mark.parametrize(
    ("operator", "run", "read", "written"),
    [
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
    ],
)
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_what_is_overwritten_is_not_read(
    operator: str, run: Callable[[], object], read: int, written: int
) -> None:
    assert moved(operator, run) == (read, written)


@pytest.mark.parametrize(
    ("operator", "run"),
    [
        ("view", lambda: A.view(15)),
        ("t", lambda: A.t()),
        ("transpose", lambda: A.transpose(0, 1)),
        ("permute", lambda: A.permute(1, 0)),
        ("expand", lambda: A.expand(9, 3, 5)),
        ("slice", lambda: A[1:]),
        ("select", lambda: A[1]),
        ("unsqueeze", lambda: A.unsqueeze(0)),
        ("squeeze", lambda: A.squeeze()),
        ("as_strided", lambda: A.as_strided((2, 2), (1, 1))),
        ("split", lambda: A.split(1)),
        ("unbind", lambda: A.unbind()),
        ("detach", lambda: A.detach()),
        ("alias", lambda: torch.ops.aten.alias(A)),
        ("_unsafe_view", lambda: torch.ops.aten._unsafe_view(A, [15])),
        ("empty", lambda: torch.empty(3, 5)),
        ("empty_like", lambda: torch.empty_like(A)),
        ("empty_strided", lambda: torch.empty_strided((3, 5), (5, 1))),
        ("empty_permuted", lambda: torch.empty_permuted((3, 5), (1, 0))),
        ("new_empty", lambda: A.new_empty(3)),
        ("new_empty_strided", lambda: A.new_empty_strided((3,), (1,))),
        ("resize_", lambda: floats(3).resize_(10)),
        ("set_", lambda: floats(3).set_(floats(9))),  # type: ignore[call-overload]
    ],
)
def test_views_and_memory_that_is_not_touched_are_free(operator: str, run: Callable[[], object]) -> None:
    assert moved(operator, run) == (0, 0)


@pytest.mark.parametrize(
    ("run", "read"),
    [
        (lambda: floats(5).expand(3, 5) + 1, 20),
        (lambda: floats(1).expand(3, 5) + 1, 4),
        (lambda: floats(3, 1).expand(3, 5) + 1, 12),
        (lambda: A + floats(5), SIZE_A + 20),
        (lambda: A[:, 1:3] + 1, 4 * 6),
        (lambda: A.t() + 1, SIZE_A),
    ],
)
def test_of_an_operand_only_memory_that_it_really_has_is_read(run: Callable[[], Tensor], read: int) -> None:
    assert moved("add", run) == (read, run().numel() * 4)


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


def test_asking_for_a_number_reads() -> None:
    assert moved("_local_scalar_dense", lambda: torch.tensor(1.0).item()) == (4, 0)
    assert moved("equal", lambda: torch.equal(A, A)) == (2 * SIZE_A, 0)


@pytest.mark.filterwarnings("ignore:Sparse")
def test_sparse_operands_count_nothing() -> None:
    found = calls(lambda: torch.sparse.mm(torch.eye(4).to_sparse(), floats(4, 3)).sum())
    assert {call.operator: (call.read, call.written) for call in found}["sum"] == (48, 4)
    table = torch.ones(10, 4, requires_grad=True)
    calls(lambda: F.embedding(indices(1, 2), table, sparse=True).sum().backward())
    assert table.grad is not None
    assert footprint(table.grad) == 0


def test_empty_operands_move_nothing() -> None:
    assert moved("add", lambda: torch.zeros(0, 5) + torch.zeros(5)) == (20, 0)
    assert moved("index", lambda: A[torch.zeros(0, dtype=torch.int64)]) == (0, 0)
    assert moved("cat", lambda: torch.cat([torch.zeros(0), floats(2)])) == (8, 8)
    assert footprint(floats(5).expand(0, 5)) == 0
