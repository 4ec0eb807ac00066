"""Which storages are followed, and for how long."""

import array
import threading

import numpy as np
import pytest
import torch
from storage_lives import category_of, changes, followed_storages, life_of
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.multiprocessing.reductions import StorageWeakRef

from dpprof.measure.passes.account import Account
from dpprof.measure.passes.ledger import Ledger
from dpprof.measure.passes.storages import Storages

storages = pytest.fixture(followed_storages)


def test_a_storage_is_freed_at_once_when_its_last_tensor_is(storages: Storages) -> None:
    tensor = torch.zeros(100)
    storage, view = StorageWeakRef(tensor.untyped_storage()), tensor[10:20]
    storages.label("noise", [("", tensor)])
    del tensor
    assert not storage.expired()
    assert storages.live_bytes() == 400
    del view
    assert storage.expired()
    del storage  # older torch keeps a storage's object as long as this
    assert storages.live_bytes() == 0


def test_a_storage_has_what_it_was_born_with(storages: Storages) -> None:
    with storages.in_phase("forward"):
        tensor = torch.zeros(3, 4, dtype=torch.bfloat16)
    life = life_of(storages, tensor.view(12))
    assert (life.num_bytes, life.shape, life.dtype) == (24, (3, 4), "bfloat16")
    assert (life.operator, life.phase, life.alive) == ("aten::zeros", "forward", True)
    assert (life.category, life.name) == (None, "")
    storages.label("noise", [("head", tensor.view(4, 3))])
    assert (life.shape, life.name, life.category) == ((4, 3), "head", "noise")


def test_a_storage_was_made_for_the_module_being_called() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.Linear(4, 2)))
    with Ledger("cpu") as ledger:
        ledger.modules.name(model)
        out = model(torch.ones(1, 3))
        assert life_of(ledger.storages, out).module == "1.0"


def test_a_tensor_made_unseen_is_found_when_first_used(storages: Storages) -> None:
    made: list[Tensor] = []
    thread = threading.Thread(target=lambda: made.append(torch.zeros(100)))
    thread.start()
    thread.join()
    assert storages.live_bytes() == 0
    made[0].add_(1)
    assert storages.live_bytes() == 400


def test_tensors_in_lists_and_keywords_are_seen(storages: Storages) -> None:
    unseen: list[Tensor] = []
    thread = threading.Thread(target=lambda: unseen.extend(torch.zeros(n) for n in (1, 2, 4, 4)))
    thread.start()
    thread.join()
    torch._foreach_zero_(unseen[:2])
    assert storages.live_bytes() == 4 + 8
    torch.neg(unseen[2], out=unseen[3])
    assert storages.live_bytes() == 4 + 8 + 16 + 16


def test_what_autograd_saves_lives_until_backward(storages: Storages) -> None:
    x = torch.ones(100, requires_grad=True)
    loss = (x * 2).exp().sum()
    assert storages.live_bytes() == 400 + 400 + 4
    loss.backward()
    assert storages.live_bytes() == 400 + 4 + 400
    del loss
    x.grad = None
    assert storages.live_bytes() == 400


def test_memory_that_torch_did_not_allocate_is_left_out(storages: Storages) -> None:
    borrowed = torch.frombuffer(array.array("f", [1, 2, 3]), dtype=torch.float32)
    converted = torch.from_numpy(np.ones(5, dtype=np.float32))
    assert storages.see(borrowed) is None
    assert borrowed.view(3).add_(1).sum().item() == 9
    assert storages.live_bytes() == 0
    own = converted + 1
    assert storages.live_bytes() == 20 == own.nbytes


def test_empty_tensors_have_no_storage_to_follow(storages: Storages) -> None:
    empty = torch.zeros(0, 7)
    assert storages.see(empty) is None
    storages.start_step()
    empty.resize_(3)
    assert changes(storages.end_step()) == [("temporary", 12, None)]


def test_other_devices_are_left_out(storages: Storages) -> None:
    on_meta = torch.zeros(1_000, device="meta") + 1
    assert storages.live_bytes() == 0
    storages.label("noise", [("", on_meta)])
    assert storages.live_bytes() == 0
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
    assert changes(storages.end_step()) == [
        ("noise", 360, None),
        ("noise", -400, None),
        ("noise", 40, None),
        ("noise", -40, None),
    ]


def test_a_resizing_operator_changes_a_storage_that_stays_the_same(storages: Storages) -> None:
    tensor = torch.zeros(10)
    life = life_of(storages, tensor)
    tensor.resize_(100)
    assert life_of(storages, tensor[3:]) is life
    assert storages.live_bytes() == life.num_bytes == 400
    tensor.resize_(5)
    assert storages.live_bytes() == 400


def test_thousands_of_storages_at_the_same_addresses(storages: Storages) -> None:
    storages.start_step()
    addresses = set()
    for _ in range(2_000):
        tensor = torch.empty(64)
        addresses.add(tensor.untyped_storage()._cdata)
        assert storages.live_bytes() == 256
        storages.label("noise", [("", tensor)])
        del tensor
        assert storages.live_bytes() == 0
    assert len(addresses) < 1_000
    log = storages.end_step()
    assert changes(log) == 2_000 * [("noise", 256, None), ("noise", -256, None)]
    assert Account(log).result([]).num_storages == 2_000


def test_a_new_storage_does_not_inherit_from_the_one_that_lived_there(storages: Storages) -> None:
    addresses: dict[int, str] = {}
    for index in range(2_000):
        tensor = torch.empty(64)
        address = tensor.untyped_storage()._cdata
        assert life_of(storages, tensor).category is None
        if address in addresses:
            return
        addresses[address] = f"number {index}"
        storages.label("noise", [("", tensor)])
        del tensor
    pytest.fail("no address was used twice")


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


def test_after_the_ledger_nothing_is_followed_any_more() -> None:
    with Ledger("cpu") as ledger:
        survivor = torch.zeros(10)
        ledger.storages.start_step()
        assert ledger.storages.live_bytes() == 40
    assert ledger.storages.live_bytes() == 0
    later = torch.zeros(10) + survivor
    del survivor
    assert ledger.storages.live_bytes() == 0
    assert later.nbytes == 40
    assert ledger.storages.end_step().events == []


def test_two_ledgers_after_each_other_do_not_share() -> None:
    with Ledger("cpu") as first:
        kept = torch.zeros(10)
        first.storages.label("noise", [("", kept)])
    with Ledger("cpu") as second:
        assert second.storages.live_bytes() == 0
        kept.add_(1)
        assert second.storages.live_bytes() == 40
        assert category_of(second.storages, kept) is None


def test_fake_tensors_have_the_bytes_that_real_ones_would_have() -> None:
    with FakeTensorMode(), Ledger("cpu") as ledger:
        storages = ledger.storages
        huge = torch.zeros(1_000_000, 1_000_000, dtype=torch.bfloat16)
        assert storages.live_bytes() == 2 * 10**12
        view = huge[:10]
        del huge
        assert storages.live_bytes() == 2 * 10**12
        product = view @ torch.empty(1_000_000, 7, dtype=torch.bfloat16)
        storages.label("noise", [("", product)])
        assert storages.live_bytes() == 2 * 10**12 + 2 * 10 * 7
        assert category_of(storages, product) == "noise"
        del view
        assert storages.live_bytes() == 2 * 10 * 7
        del product
        assert storages.live_bytes() == 0


def test_training_on_fake_tensors_takes_the_same_bytes() -> None:
    def step() -> list[tuple[str, int, str | None]]:
        with Ledger("cpu") as ledger:
            model = nn.Sequential(nn.Linear(6, 5), nn.GELU(), nn.Linear(5, 4))
            ledger.storages.label("parameters", model.named_parameters())
            x = torch.randn(3, 6)
            ledger.storages.start_step()
            model(x).square().mean().backward()
            ledger.storages.label("gradients", ((name, p.grad) for name, p in model.named_parameters()))  # type: ignore
            return changes(ledger.storages.end_step())

    real = step()
    with FakeTensorMode():
        fake = step()
    assert sum(num_bytes for category, num_bytes, _ in real if category == "gradients") == 4 * (35 + 24)
    assert sorted(fake, key=str) == sorted(real, key=str)
