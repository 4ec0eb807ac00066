import array
import copy
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.multiprocessing.reductions import StorageWeakRef

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


# Random programs


class World:
    """The tensors and modules that a random program works on, and an independent count of their storages."""

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []
        self.modules: list[nn.Module] = []

    def all_tensors(self) -> list[Tensor]:
        """The tensors, and their bases: a view keeps its base, even when it is set to another storage."""
        kept = [*self.tensors, *(p for module in self.modules for p in module.parameters())]
        return kept + [tensor._base for tensor in kept if tensor._base is not None]

    def sizes(self) -> dict[int, int]:
        """Bytes of every storage that takes any, by the address of its handle."""
        found = [tensor.untyped_storage() for tensor in self.all_tensors()]
        return {storage._cdata: storage.nbytes() for storage in found if storage.nbytes()}


DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.int8)
# What a program does with a tensor of the world; `number` is any small number.
Operation = Callable[[World, Tensor, int], None]


def add(world: World, *tensors: Tensor) -> None:
    world.tensors += tensors


def same_type(world: World, tensor: Tensor, number: int) -> Tensor:
    others = [other for other in world.tensors if other.dtype is tensor.dtype]
    return others[number % len(others)]


def change_in_place(world: World, tensor: Tensor, number: int) -> None:
    if 0 not in tensor.stride():
        tensor.add_(1)
        tensor.zero_()


def grow_behind_operators(world: World, tensor: Tensor, number: int) -> None:
    tensor.untyped_storage().resize_(tensor.untyped_storage().nbytes() + 8 * number)
    add(world, tensor.detach())


def assign_data(world: World, tensor: Tensor, number: int) -> None:
    tensor.data = same_type(world, tensor, number)


def share_between_modules(world: World, tensor: Tensor, number: int) -> None:
    first, second = nn.Module(), nn.Module()
    first.weight = second.weight = nn.Parameter(tensor, requires_grad=False)
    world.modules += [first, second]


def assign_to_module(world: World, tensor: Tensor, number: int) -> None:
    if world.modules:
        module = world.modules[number % len(world.modules)]
        module.weight = nn.Parameter(tensor.clone(), requires_grad=False)


def delete(world: World, tensor: Tensor, number: int) -> None:
    world.tensors = [other for other in world.tensors if other is not tensor]


def delete_module(world: World, tensor: Tensor, number: int) -> None:
    if world.modules:
        world.modules.pop(number % len(world.modules))


def delete_some_in_another_thread(world: World, tensor: Tensor, number: int) -> None:
    handed_over = world.tensors[::-2]
    world.tensors = world.tensors[::2] if len(world.tensors) % 2 == 0 else world.tensors[1::2]
    thread = threading.Thread(target=handed_over.clear)
    thread.start()
    thread.join()


OPERATIONS: dict[str, Operation] = {
    "result": lambda w, t, n: add(w, t + 1),
    "clone": lambda w, t, n: add(w, t.clone()),
    "deep copy": lambda w, t, n: add(w, copy.deepcopy(t)),
    "cat": lambda w, t, n: add(w, torch.cat([t.flatten(), same_type(w, t, n).flatten()])),
    "several results": lambda w, t, n: add(w, *torch.sort(t.flatten())),
    "into another": lambda w, t, n: add(w, torch.neg(t, out=torch.empty(0, dtype=t.dtype))),
    "view": lambda w, t, n: add(w, t.flatten()),
    "slice": lambda w, t, n: add(w, t[n % 3 :: 2] if t.dim() else t),
    "transposed": lambda w, t, n: add(w, t.mT if t.dim() > 1 else t.view(t.shape)),
    "expand": lambda w, t, n: add(w, t.expand(n + 1, *t.shape)),
    "split": lambda w, t, n: add(w, *t.unbind()[:3] if t.dim() else (t,)),
    "detach": lambda w, t, n: add(w, t.detach()),
    "data": lambda w, t, n: add(w, t.data),
    "change in place": change_in_place,
    "set to another": lambda w, t, n: add(w, t.set_(same_type(w, t, n))),  # type: ignore[call-overload]
    "set to nothing": lambda w, t, n: add(w, t.set_()),  # type: ignore[call-overload]
    "resize": lambda w, t, n: add(w, t.resize_(n)),
    "grow behind operators": grow_behind_operators,
    "assign data": assign_data,
    "share between modules": share_between_modules,
    "assign to module": assign_to_module,
    "delete": delete,
    "delete too": delete,
    "delete module": delete_module,
    "delete some in another thread": delete_some_in_another_thread,
}
NUMBERS = st.integers(0, 7)
Act = tuple[str, int, int]
ACTS: st.SearchStrategy[Act] = st.tuples(
    st.sampled_from(["birth", "birth of a list", *OPERATIONS]), NUMBERS, NUMBERS
)


def act(world: World, what: str, which: int, number: int) -> None:
    """Do one thing in the world; the names of tensors here must not outlive it."""
    if what == "birth":
        add(world, torch.zeros(number % 5, which, dtype=DTYPES[number % len(DTYPES)]))
    elif what == "birth of a list":
        add(world, torch.tensor([1.0] * number))
    elif world.tensors:
        OPERATIONS[what](world, world.tensors[which % len(world.tensors)], number)


@settings(deadline=None)
@given(st.lists(ACTS, max_size=40))
def test_every_storage_of_any_program_counts_once_as_long_as_it_lives(program: list[Act]) -> None:
    world = World()
    with Ledger("cpu") as ledger:
        for step in program:
            act(world, *step)
            assert ledger.storages.live_bytes() == sum(world.sizes().values())
        while world.tensors:
            world.tensors.pop(len(world.tensors) // 2)
            assert ledger.storages.live_bytes() == sum(world.sizes().values())
        world.modules.clear()
        assert ledger.storages.live_bytes() == 0


CATEGORY = st.sampled_from(["parameters", "gradients", "activations", "noise"])
Label = tuple[str, str, int]
LABELS: st.SearchStrategy[Label] = st.tuples(st.just("label"), CATEGORY, NUMBERS)
EXPECTED_ACTS = st.tuples(ACTS, st.none() | CATEGORY)


class Story:
    """What a storage was at each moment, told by the one who labels: bytes, and its label."""

    def __init__(self, by_default: str) -> None:
        self.by_default = by_default
        self.sizes: dict[int, int] = {}
        self.labels: dict[int, str] = {}

    def category(self, moment: int) -> str:
        if not self.labels:
            return self.by_default
        return self.labels[max((at for at in self.labels if at <= moment), default=min(self.labels))]


@settings(deadline=None)
@given(
    st.lists(EXPECTED_ACTS | LABELS, max_size=12),
    st.lists(EXPECTED_ACTS | LABELS, max_size=30),
)
def test_the_log_of_any_program_tells_what_was_alive_at_every_moment(
    before: list[Any], within: list[Any]
) -> None:
    world = World()
    stories: list[Story] = []
    current: dict[int, Story] = {}

    def do(storages: Storages, step: Any, moment: int) -> None:
        if step[0] == "label":
            _, category, which = step
            if world.tensors:
                tensor = world.tensors[which % len(world.tensors)]
                storages.label(category, [("", tensor)])
                if tensor.untyped_storage().nbytes():
                    current[tensor.untyped_storage()._cdata].labels[moment] = category
            expected = None
        else:
            what, expected = step
            if expected is None:
                act(world, *what)
            else:
                with storages.label_new(expected):
                    act(world, *what)
        sizes = world.sizes()
        for gone in [key for key in current if key not in sizes]:
            del current[gone]
        for key, num_bytes in sizes.items():
            if key not in current:
                current[key] = Story(expected or ("temporary" if moment > 0 else "other"))
                stories.append(current[key])
            current[key].sizes[moment] = num_bytes

    with Ledger("cpu") as ledger:
        for number, step in enumerate(before, 1):
            do(ledger.storages, step, number - len(before) - 1)
        for key, num_bytes in world.sizes().items():
            current[key].sizes[0] = num_bytes
        ledger.storages.start_step()
        for moment, step in enumerate(within, 1):
            with ledger.storages.in_phase(str(moment)):
                do(ledger.storages, step, moment)
        log = ledger.storages.end_step()
        assert ledger.storages.live_bytes() == sum(world.sizes().values())

    def levels_at(moment: int) -> dict[str, int]:
        levels: dict[str, int] = defaultdict(int)
        for story in stories:
            if moment in story.sizes:
                levels[story.category(moment)] += story.sizes[moment]
        return levels

    account = Account(log)
    timeline = account.timeline()
    levels: dict[str, int] = defaultdict(int, timeline.start)
    assert levels == levels_at(0)
    event = 0
    for moment, phase in enumerate(log.phases, 1):
        while event < phase.end_event:
            category, num_bytes = timeline.category[event], timeline.num_bytes[event]
            moved_to = timeline.moved_to[event]
            levels[category] += num_bytes if moved_to is None else -num_bytes
            if moved_to is not None:
                levels[moved_to] += num_bytes
            assert min(levels.values()) >= 0
            event += 1
        assert {name: held for name, held in levels.items() if held} == levels_at(moment)
    assert event == len(log.events)
    assert account.after_step == levels_at(len(within))
    assert sum(account.after_step.values()) == sum(world.sizes().values())
    assert account.peak >= max(sum(levels_at(moment).values()) for moment in range(len(within) + 1))


# What is followed, and for how long


def test_a_storage_is_freed_at_once_when_its_last_tensor_is(storages: Storages) -> None:
    tensor = torch.zeros(100)
    storage, view = StorageWeakRef(tensor.untyped_storage()), tensor[10:20]
    storages.label("noise", [("", tensor)])
    del tensor
    assert not storage.expired()
    assert storages.live_bytes() == 400
    del view
    assert storage.expired()
    assert storages.live_bytes() == 0


def test_a_log_keeps_no_storage_alive(storages: Storages) -> None:
    storages.start_step()
    with storages.label_new("noise"), storages.label_surviving("activations"):
        tensor = torch.zeros(100)
    storage = StorageWeakRef(tensor.untyped_storage())
    del tensor
    assert storage.expired()
    life = storages.end_step().events[0].life
    assert (life.num_bytes, life.alive) == (400, False)


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


def test_a_phase_has_the_events_within_it(storages: Storages) -> None:
    storages.start_step()
    a = torch.zeros(1)
    with storages.in_phase("forward"):
        b, c = torch.zeros(2), torch.zeros(3)
    del b
    with storages.in_phase("backward"):
        del a
    with storages.in_phase("clip"):
        pass
    log = storages.end_step()
    spans = [(p.name, p.first_event, p.end_event) for p in log.phases]
    assert spans == [("forward", 1, 3), ("backward", 4, 5), ("clip", 5, 5)]
    assert [event.num_bytes for event in log.events] == [4, 8, 12, -8, -4]
    assert storages.live_bytes() == 12 == c.nbytes


def test_a_phase_that_fails_still_ends(storages: Storages) -> None:
    storages.start_step()
    with pytest.raises(KeyError), storages.in_phase("clip"):
        raise KeyError
    assert storages.phase is None
    assert [phase.name for phase in storages.end_step().phases] == ["clip"]


def test_phases_outside_a_step_leave_no_span(storages: Storages) -> None:
    with storages.in_phase("forward"):
        kept = torch.zeros(1)
    storages.start_step()
    log = storages.end_step()
    assert log.phases == []
    assert life_of(storages, kept).phase == "forward"


def test_a_step_only_logs_what_happens_in_it(storages: Storages) -> None:
    a = torch.zeros(1)
    storages.start_step()
    b = torch.zeros(2)
    del a
    first = storages.end_step()
    del b
    c = torch.zeros(4)
    storages.start_step()
    second = storages.end_step()
    assert [num_bytes for _, num_bytes in first.present] == [4]
    assert [event.num_bytes for event in first.events] == [8, -4]
    assert all(first.start <= event.at <= first.end for event in first.events)
    assert [num_bytes for _, num_bytes in second.present] == [16]
    assert second.events == []
    assert c.numel() == 4


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


def test_a_storage_resized_behind_torchs_operators_is_found_out_when_next_seen(storages: Storages) -> None:
    tensor = torch.zeros(10)
    storages.start_step()
    tensor.untyped_storage().resize_(400)
    assert storages.live_bytes() == 40
    tensor.add_(1)
    assert storages.live_bytes() == 400
    tensor.untyped_storage().resize_(0)
    storages.label("noise", [("", tensor)])
    assert storages.live_bytes() == 0
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


# What storages are for


def test_the_first_label_holds_from_birth_on(storages: Storages) -> None:
    storages.start_step()
    a, b = torch.zeros(10), torch.zeros(20)
    storages.label("noise", [("head.weight", a)])
    log = storages.end_step()
    assert changes(log) == [("noise", 40, None), ("temporary", 80, None)]
    assert life_of(storages, a).name == "head.weight"
    assert category_of(storages, b) is None


def test_a_second_label_is_a_change_in_time(storages: Storages) -> None:
    storages.start_step()
    a = torch.zeros(10)
    storages.label("per_sample_gradients", [("w", a)])
    storages.label("per_sample_gradients", [("w", a)])
    b = torch.zeros(5)
    storages.label("gradients", [("w", a.view(2, 5))])
    del a
    assert changes(storages.end_step()) == [
        ("per_sample_gradients", 40, None),
        ("temporary", 20, None),
        ("per_sample_gradients", 40, "gradients"),
        ("gradients", -40, None),
    ]
    assert b.numel() == 5


def test_a_view_is_labelled_with_all_of_its_storage(storages: Storages) -> None:
    storages.start_step()
    a = torch.zeros(10)
    storages.label("noise", [("w", a[3:5])])
    assert changes(storages.end_step()) == [("noise", 40, None)]


def test_what_was_labelled_in_one_step_is_known_in_the_next(storages: Storages) -> None:
    a, b = torch.zeros(10), torch.zeros(20)
    storages.label("parameters", [("w", a)])
    storages.label("gradients", [("w", a)])
    storages.start_step()
    storages.label("noise", [("", a)])
    storages.label("inputs", [("", b)])
    account = Account(storages.end_step())
    assert account.start == {"gradients": 40, "inputs": 80}
    assert list(account.changes) == [("gradients", 40, "noise")]


def test_labelling_what_was_made_unseen_is_its_birth(storages: Storages) -> None:
    made: list[Tensor] = []
    thread = threading.Thread(target=lambda: made.append(torch.zeros(100)))
    thread.start()
    thread.join()
    storages.start_step()
    storages.label("inputs", [("", made[0])])
    assert changes(storages.end_step()) == [("inputs", 400, None)]


def test_of_two_categories_that_hold_one_storage_the_first_named_counts(storages: Storages) -> None:
    a, b = torch.zeros(10), torch.zeros(20)
    held = {
        "gradients": [("a", a)],
        "per_sample_gradients": [("b", b), ("a as well", a[2:])],
    }
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


def test_held_tensors_of_which_some_are_not_followed(storages: Storages) -> None:
    a = torch.zeros(10)
    storages.label_held({"noise": [("meta", torch.zeros(3, device="meta")), ("a", a)], "inputs": []})
    assert category_of(storages, a) == "noise"
    assert storages.live_bytes() == 40


def test_what_is_made_inside_is_expected_to_be_of_a_category(storages: Storages) -> None:
    before = torch.zeros(1)
    with storages.label_new("noise"):
        inside = before + torch.zeros(2)
        view = before.view(1)
    after = torch.zeros(4)
    assert [category_of(storages, t) for t in (before, inside, view, after)] == [None, "noise", None, None]


def test_only_what_is_accepted_is_expected(storages: Storages) -> None:
    with storages.label_new("gram_matrices", lambda shape: len(shape) == 3 and shape[1] == shape[2]):
        square, flat = torch.zeros(2, 5, 5), torch.zeros(2, 5)
    assert category_of(storages, square) == "gram_matrices"
    assert category_of(storages, flat) is None


def test_of_nested_expectations_the_innermost_that_accepts_counts(storages: Storages) -> None:
    with storages.label_new("noise"):
        with storages.label_new("gram_matrices", lambda shape: len(shape) == 3):
            cube, flat = torch.zeros(2, 5, 5), torch.zeros(2, 5)
            with storages.label_new("clip_factors"):
                inner = torch.zeros(2, 5, 5)
        late = torch.zeros(2, 5, 5)
    found = [category_of(storages, t) for t in (cube, flat, inner, late)]
    assert found == ["gram_matrices", "noise", "clip_factors", "noise"]


def test_a_label_overrides_an_expectation_from_birth_on(storages: Storages) -> None:
    storages.start_step()
    with storages.label_new("noise"):
        a, b = torch.zeros(10), torch.zeros(20)
    storages.label("gradients", [("w", a)])
    assert changes(storages.end_step()) == [("gradients", 40, None), ("noise", 80, None)]
    assert b.numel() == 20


def test_an_expectation_ends_when_what_is_inside_fails(storages: Storages) -> None:
    with pytest.raises(KeyError), storages.label_new("noise"), storages.label_surviving("activations"):
        raise KeyError
    assert category_of(storages, torch.zeros(3)) is None


def test_what_outlives_its_making_is_kept_for_a_purpose(storages: Storages) -> None:
    before = torch.zeros(1)
    storages.start_step()
    with storages.label_surviving("activations"):
        kept, gone, labelled = torch.zeros(10), torch.zeros(20), torch.zeros(40)
        storages.label("inputs", [("", labelled)])
        with storages.label_new("noise"):
            expected = torch.zeros(80)
        before.add_(1)
        del gone
    after = torch.zeros(160)
    found = [category_of(storages, t) for t in (before, kept, labelled, expected, after)]
    assert found == [None, "activations", "inputs", "noise", None]
    assert changes(storages.end_step())[:3] == [
        ("activations", 40, None),
        ("temporary", 80, None),
        ("inputs", 160, None),
    ]


def test_of_nested_purposes_the_inner_one_counts(storages: Storages) -> None:
    with storages.label_surviving("activations"):
        with storages.label_surviving("noise"):
            inner = torch.zeros(1)
        outer = torch.zeros(2)
    assert [category_of(storages, t) for t in (inner, outer)] == ["noise", "activations"]


def test_what_was_kept_for_a_purpose_may_be_labelled_otherwise_from_birth_on(storages: Storages) -> None:
    storages.start_step()
    with storages.label_surviving("activations"):
        a = torch.zeros(10)
    storages.label("gradients", [("", a)])
    assert changes(storages.end_step()) == [("gradients", 40, None)]


def test_ending_a_step_that_never_began_is_refused() -> None:
    with pytest.raises(AssertionError, match="no step has begun"):
        Storages("cpu").end_step()


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
    assert account.at_peak == {"per_sample_gradients": 40, "temporary": 20}
    assert [(t.category, t.num_bytes) for t in account.tensors_at_peak] == [
        ("per_sample_gradients", 40),
        ("temporary", 20),
    ]
    assert account.timeline().category[0] == "per_sample_gradients"


def test_a_category_that_is_not_listed_comes_after_those_that_are() -> None:
    with Ledger("cpu") as ledger:
        storages = ledger.storages
        storages.start_step()
        first, second = torch.zeros(10), torch.zeros(5)
        storages.label("flat_gradients", [("", first)])
        storages.label("noise", [("", second)])
        account = Account(storages.end_step())
    assert list(account.at_peak.items()) == [("noise", 20), ("flat_gradients", 40)]


def test_a_label_without_a_name_leaves_the_name() -> None:
    storages, tensor = Storages("cpu"), torch.zeros(3)
    storages.label("gradients", [("head.weight", tensor)])
    storages.label("gradients", [("", tensor)])
    life = storages.see(tensor)
    assert life is not None
    assert life.name == "head.weight"
