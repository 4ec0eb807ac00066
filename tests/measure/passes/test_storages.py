"""Storages from birth to death, what they are for, and the log of a step."""

import array
import threading
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from dpprof.measure.passes.account import Account
from dpprof.measure.passes.ledger import Ledger
from dpprof.measure.passes.storages import Life, StepLog, Storages


@pytest.fixture
def storages() -> Iterator[Storages]:
    """Those of the CPU, followed through every operator that the test calls."""
    with Ledger("cpu") as ledger:
        yield ledger.storages


def life_of(storages: Storages, tensor: Tensor) -> Life:
    life = storages.see(tensor)
    assert life is not None
    return life


def category_of(storages: Storages, tensor: Tensor) -> str | None:
    return life_of(storages, tensor).category


def changes(log: StepLog) -> list[tuple[str, int, str | None]]:
    return list(Account(log).changes)


def test_a_storage_has_what_it_was_born_with(storages: Storages) -> None:
    with storages.in_phase("forward"):
        tensor = torch.zeros(3, 4, dtype=torch.bfloat16)
    life = life_of(storages, tensor.view(12))
    assert (life.num_bytes, life.shape, life.dtype) == (24, (3, 4), "bfloat16")
    assert (life.operator, life.phase, life.alive) == ("aten::zeros", "forward", True)
    assert (life.category, life.name) == (None, "")
    storages.label("noise", [("head", tensor.view(4, 3))])
    storages.label("noise", [("", tensor)])
    assert (life.shape, life.name, life.category) == ((4, 3), "head", "noise")


def test_a_storage_was_made_for_the_module_being_called() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.Linear(4, 2)))
    with Ledger("cpu") as ledger:
        ledger.modules.name(model)
        out = model(torch.ones(1, 3))
        assert life_of(ledger.storages, out).module == "1.0"


def test_tensors_in_lists_and_keywords_are_seen(storages: Storages) -> None:
    unseen: list[Tensor] = []
    thread = threading.Thread(target=lambda: unseen.extend(torch.zeros(n) for n in (1, 2, 4, 4)))
    thread.start()
    thread.join()
    torch._foreach_zero_(unseen[:2])
    assert storages.live_bytes() == 4 + 8
    torch.neg(unseen[2], out=unseen[3])
    assert storages.live_bytes() == 4 + 8 + 16 + 16


def test_memory_that_torch_did_not_allocate_is_left_out(storages: Storages) -> None:
    borrowed = torch.frombuffer(array.array("f", [1, 2, 3]), dtype=torch.float32)
    converted = torch.from_numpy(np.ones(5, dtype=np.float32))
    assert storages.see(borrowed) is None
    assert borrowed.view(3).add_(1).sum().item() == 9
    assert storages.live_bytes() == 0
    own = converted + 1
    assert storages.live_bytes() == 20 == own.nbytes


def test_other_devices_are_left_out(storages: Storages) -> None:
    on_meta, here = torch.zeros(1_000, device="meta") + 1, torch.zeros(10)
    storages.label("noise", [("", on_meta)])
    storages.label_held({"noise": [("meta", on_meta), ("here", here)], "inputs": []})
    assert category_of(storages, here) == "noise"
    assert storages.live_bytes() == 40
    with Ledger("meta") as ledger:
        moved = torch.zeros(10).to("meta")
        assert ledger.storages.live_bytes() == 40 == moved.nbytes


@pytest.mark.filterwarnings("ignore:Sparse")
def test_sparse_tensors_are_left_out_and_what_they_are_made_of_is_not(storages: Storages) -> None:
    values, indices = torch.ones(3), torch.tensor([[0, 1, 2]])
    sparse = torch.sparse_coo_tensor(indices, values, (10,), is_coalesced=True)
    assert storages.see(sparse) is None
    storages.label("noise", [("", sparse)])
    assert storages.live_bytes() == 3 * 4 + 3 * 8
    assert category_of(storages, values) is None
    dense = (sparse * 2).to_dense()
    assert storages.live_bytes() == 3 * 4 + 3 * 8 + 10 * 4 == 36 + dense.nbytes


def test_a_storage_resized_behind_torchs_operators_is_followed_at_once(storages: Storages) -> None:
    tensor = torch.zeros(10)
    storages.start_step()
    tensor.untyped_storage().resize_(400)
    assert storages.live_bytes() == 400
    tensor.untyped_storage().resize_(0)
    assert storages.live_bytes() == 0
    storages.label("noise", [("", tensor)])
    tensor.untyped_storage().resize_(40)
    tensor.zero_()
    del tensor
    assert changes(storages.end_step()) == [("noise", change, None) for change in (360, -400, 40, -40)]


def test_many_threads_free_while_others_are_born(storages: Storages) -> None:
    storages.start_step()
    handed_over = [torch.empty(8) for _ in range(400)]

    def free_some() -> None:
        while handed_over:
            handed_over.pop()

    threads = [threading.Thread(target=free_some) for _ in range(4)]
    for thread in threads:
        thread.start()
    kept = [torch.empty(4) for _ in range(400)]
    for thread in threads:
        thread.join()
    assert storages.live_bytes() == 400 * 16 == sum(tensor.nbytes for tensor in kept)
    account = Account(storages.end_step())
    assert account.after_step == {"temporary": 400 * 16}
    assert account.result([]).num_storages == 800


def test_ledgers_after_each_other_share_nothing() -> None:
    with Ledger("cpu") as first:
        kept = torch.zeros(10)
        first.storages.label("noise", [("", kept)])
        first.storages.start_step()
        assert first.storages.live_bytes() == 40
    later = torch.zeros(10) + kept
    assert first.storages.live_bytes() == 0
    assert first.storages.end_step().events == []
    with Ledger("cpu") as second:
        assert second.storages.live_bytes() == 0
        later += kept
        assert second.storages.live_bytes() == 40 + 40
        assert category_of(second.storages, kept) is None


def test_phases_may_nest(storages: Storages) -> None:
    storages.start_step()
    with storages.in_phase("clip"):
        with storages.in_phase("noise"):
            inner = torch.zeros(1)
        outer = torch.zeros(1)
    after = torch.zeros(1)
    assert [life_of(storages, t).phase for t in (inner, outer, after)] == ["noise", "clip", None]
    log = storages.end_step()
    assert [(p.name, p.first_event, p.end_event) for p in log.phases] == [("noise", 0, 1), ("clip", 0, 2)]
    assert all(log.start <= p.start <= p.end <= log.end for p in log.phases)


def test_what_fails_still_ends(storages: Storages) -> None:
    storages.start_step()
    with (
        pytest.raises(KeyError),
        storages.in_phase("clip"),
        storages.label_new("noise"),
        storages.label_surviving("activations"),
    ):
        raise KeyError
    assert storages.phase is None
    assert category_of(storages, torch.zeros(3)) is None
    assert [phase.name for phase in storages.end_step().phases] == ["clip"]


def test_of_two_categories_that_hold_one_storage_the_first_named_counts(storages: Storages) -> None:
    a, b = torch.zeros(10), torch.zeros(20)
    held = {"gradients": [("a", a)], "per_sample_gradients": [("b", b), ("a as well", a[2:])]}
    storages.start_step()
    for _ in range(3):
        storages.label_held(held)
    account = Account(storages.end_step())
    assert account.start == {"gradients": 40, "per_sample_gradients": 80}
    assert list(account.changes) == []
    assert life_of(storages, a).name == "a"
    storages.start_step()
    storages.label_held({category: held[category] for category in reversed(held)})
    moves = changes(storages.end_step())
    assert moves == [("gradients", 40, "per_sample_gradients")]
    assert life_of(storages, a).name == "a as well"


def test_of_nested_expectations_the_innermost_that_accepts_counts(storages: Storages) -> None:
    with storages.label_new("noise"):
        with storages.label_new("gram_matrices", lambda shape: len(shape) == 3):
            cube, flat = torch.zeros(2, 5, 5), torch.zeros(2, 5)
            with storages.label_new("clip_factors"):
                inner = torch.zeros(2, 5, 5)
        late = torch.zeros(2, 5, 5)
    found = [category_of(storages, t) for t in (cube, flat, inner, late)]
    assert found == ["gram_matrices", "noise", "clip_factors", "noise"]


def test_what_outlives_its_making_is_kept_for_a_purpose(storages: Storages) -> None:
    before = torch.zeros(1)
    storages.start_step()
    with storages.label_surviving("activations"):
        kept, gone, labelled, relabelled = (torch.zeros(n) for n in (10, 20, 40, 80))
        storages.label("inputs", [("", labelled)])
        with storages.label_new("noise"):
            expected = torch.zeros(160)
        with storages.label_surviving("clip_factors"):
            inner = torch.zeros(320)
        before.add_(1)
        del gone
    after = torch.zeros(640)
    storages.label("gradients", [("", relabelled)])
    found = [category_of(storages, t) for t in (before, kept, labelled, relabelled, expected, inner, after)]
    assert found == [None, "activations", "inputs", "gradients", "noise", "clip_factors", None]
    assert changes(storages.end_step())[:4] == [
        ("activations", 40, None),
        ("temporary", 80, None),
        ("inputs", 160, None),
        ("gradients", 320, None),
    ], "from birth on"


def test_what_later_steps_label_leaves_an_account_as_it_is() -> None:
    with Ledger("cpu") as ledger:
        storages = ledger.storages
        storages.start_step()
        first, second = torch.zeros(10), torch.zeros(5)
        storages.label("per_sample_gradients", [("", first)])
        storages.label("gradients", [("", first)])
        account = Account(storages.end_step())
        storages.start_step()
        storages.label("inputs", [("", second)])
        storages.end_step()
    assert [(t.category, t.num_bytes) for t in account.timeline().tensors] == [
        ("per_sample_gradients", 40),
        ("temporary", 20),
    ]
