"""The bytes of operators that pick or scatter: of what is touched alone."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from operator_calls import calls, floats, indices, moved
from torch import Tensor


@pytest.mark.parametrize(
    ("operator", "run", "picked"),
    [
        ("embedding", lambda: F.embedding(indices(3, 9, 3), floats(100, 6)), 3 * 24),
        ("index_select", lambda: floats(100, 6).index_select(0, indices(3, 9, 3)), 3 * 24),
        ("index", lambda: floats(100, 6)[indices(3, 9, 3)], 3 * 24),
        ("gather", lambda: floats(100, 6).gather(0, indices(3, 9, 3).view(1, 3)), 3 * 4),
        ("take", lambda: floats(100, 6).take(indices(3, 9, 3)), 3 * 4),
    ],
)
def test_picking_reads_what_is_picked_and_the_indices(
    operator: str, run: Callable[[], object], picked: int
) -> None:
    assert moved(operator, run) == (picked + 3 * 8, picked)


def test_picking_more_than_there_is_reads_all_there_is_once() -> None:
    table, chosen = floats(2, 6), torch.zeros(50, dtype=torch.int64)
    assert moved("embedding", lambda: F.embedding(chosen, table)) == (48 + 400, 50 * 24)


def test_the_gradient_of_an_embedding_is_written_whole() -> None:
    table = torch.ones(100, 6, requires_grad=True)
    out = F.embedding(indices(3, 9, 3), table)
    found = moved("embedding_dense_backward", lambda: out.backward(torch.ones_like(out)))
    assert found == (3 * 24 + 3 * 8, 100 * 24)


@pytest.mark.parametrize(
    ("operator", "run", "adds"),
    [
        ("index_put_", lambda t: t.index_put_((indices(3, 9),), floats(2, 6)), False),
        ("index_put_", lambda t: t.index_put_((indices(3, 9),), floats(2, 6), accumulate=True), True),
        ("index_add_", lambda t: t.index_add_(0, indices(3, 9), floats(2, 6)), True),
    ],
)
def test_scattering_rows_touches_only_these(
    operator: str, run: Callable[[Tensor], object], adds: bool
) -> None:
    table, rows, chosen = floats(100, 6), 2 * 24, 2 * 8
    assert moved(operator, lambda: run(table)) == (rows + chosen + adds * rows, rows)


@pytest.mark.parametrize(
    ("operator", "run", "adds"),
    [
        ("scatter_", lambda t, i: t.scatter_(0, i, floats(2, 6)), False),
        ("scatter_add_", lambda t, i: t.scatter_add_(0, i, floats(2, 6)), True),
        ("scatter_reduce_", lambda t, i: t.scatter_reduce_(0, i, floats(2, 6), "sum"), True),
    ],
)
def test_scattering_elements_touches_only_these(
    operator: str, run: Callable[[Tensor, Tensor], object], adds: bool
) -> None:
    table, chosen = floats(100, 6), torch.zeros(2, 6, dtype=torch.int64)
    found = moved(operator, lambda: run(table, chosen))
    assert found == (2 * 24 + 2 * 6 * 8 + adds * 2 * 24, 2 * 24)


def test_scattering_more_than_there_is_room_for_writes_all_there_is_once() -> None:
    chosen = torch.zeros(50, dtype=torch.int64)
    found = moved("index_add_", lambda: floats(2, 6).index_add_(0, chosen, floats(50, 6)))
    assert found == (50 * 24 + 50 * 8 + 2 * 24, 2 * 24)


def test_scattering_out_of_place_copies_the_whole() -> None:
    found = moved("index_add", lambda: floats(100, 6).index_add(0, indices(3, 9), floats(2, 6)))
    assert found == (100 * 24 + 2 * 8 + 2 * 24, 100 * 24)


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


@pytest.mark.parametrize(
    ("operator", "run", "read", "written"),
    [
        # The index is int64; a value that is broadcast is read once, and written wherever it goes.
        ("scatter_", lambda t: t.scatter_(1, torch.zeros(8, 1, dtype=torch.int64), 1.0), 8 * 8, 8 * 4),
        ("index_put_", lambda t: t.index_put_((indices(1, 3),), torch.tensor(1.0)), 2 * 8 + 4, 2 * 16 * 4),
        (
            "index_put_",
            lambda t: t.index_put_((indices(1, 3), indices(0, 0)), torch.tensor(1.0)),
            2 * 2 * 8 + 4,
            2 * 4,
        ),
        (
            "index_put_",
            lambda t: t.index_put_((t > 0,), torch.tensor(1.0)),
            8 * 16 + 4,
            8 * 16 * 4,
        ),
        ("index_copy_", lambda t: t.index_copy_(0, indices(1, 3), floats(2, 16)), 2 * 8 + 128, 128),
        (
            "gather",
            lambda t: torch.gather(t, 0, indices(1, 1).view(2, 1), out=floats(2, 1)),
            2 * 4 + 2 * 8,
            8,
        ),
    ],
)
def test_indexing_with_values_masks_and_out(
    operator: str, run: Callable[[Tensor], object], read: int, written: int
) -> None:
    table = floats(8, 16)
    assert moved(operator, lambda: run(table)) == (read, written)


def test_an_averaged_loss_reads_one_logit_of_each_sample_too() -> None:
    log_probabilities, targets = floats(6, 10), torch.zeros(6, dtype=torch.int64)
    read, _ = moved("nll_loss_forward", lambda: F.nll_loss(log_probabilities, targets))
    assert read == 6 * 4 + 6 * 8
