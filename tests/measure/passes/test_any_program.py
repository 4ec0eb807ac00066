"""Random programs, held against an independent count of their storages."""

import copy
import threading
from collections import defaultdict
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from dpprof.measure.passes.account import Account
from dpprof.measure.passes.ledger import Ledger
from dpprof.measure.passes.storages import Storages
from dpprof.record.ledger import StepTimeline


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
CATEGORY = st.sampled_from(["parameters", "gradients", "activations", "noise"])
ACTS = st.tuples(st.sampled_from(["birth", "birth of a list", *OPERATIONS]), NUMBERS, NUMBERS)
LABELS = st.tuples(st.just("label"), CATEGORY, NUMBERS)
STEPS: st.SearchStrategy[Any] = st.tuples(ACTS, st.none() | CATEGORY) | LABELS


def act(world: World, what: str, which: int, number: int) -> None:
    """Do one thing in the world; the names of tensors here must not outlive it."""
    if what == "birth":
        add(world, torch.zeros(number % 5, which, dtype=DTYPES[number % len(DTYPES)]))
    elif what == "birth of a list":
        add(world, torch.tensor([1.0] * number))
    elif world.tensors:
        OPERATIONS[what](world, world.tensors[which % len(world.tensors)], number)


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


class Stories:
    """What a program's storages were at each moment, counted beside the ledger; the step begins at 0."""

    def __init__(self) -> None:
        self.world = World()
        self.all: list[Story] = []
        self.current: dict[int, Story] = {}

    def do(self, storages: Storages, step: Any, moment: int) -> None:
        """Do one thing, with the ledger looking on, and count."""
        expected = None
        if step[0] == "label":
            _, category, which = step
            if self.world.tensors:
                tensor = self.world.tensors[which % len(self.world.tensors)]
                storages.label(category, [("", tensor)])
                if tensor.untyped_storage().nbytes():
                    self.current[tensor.untyped_storage()._cdata].labels[moment] = category
        else:
            what, expected = step
            with nullcontext() if expected is None else storages.label_new(expected):
                act(self.world, *what)
        sizes = self.world.sizes()
        for gone in [key for key in self.current if key not in sizes]:
            del self.current[gone]
        for key, num_bytes in sizes.items():
            if key not in self.current:
                self.current[key] = Story(expected or ("temporary" if moment > 0 else "other"))
                self.all.append(self.current[key])
            self.current[key].sizes[moment] = num_bytes

    def begin(self) -> None:
        """What is alive now is there at the step's beginning."""
        for key, num_bytes in self.world.sizes().items():
            self.current[key].sizes[0] = num_bytes

    def levels_at(self, moment: int) -> dict[str, int]:
        """Bytes alive at a moment by category."""
        levels: dict[str, int] = defaultdict(int)
        for story in self.all:
            if moment in story.sizes:
                levels[story.category(moment)] += story.sizes[moment]
        return levels


def levels_after(timeline: StepTimeline, event: int) -> dict[str, int]:
    levels: dict[str, int] = defaultdict(int)
    for held in timeline.alive_after(event).values():
        levels[held.category] += held.num_bytes
    return levels


@given(st.lists(STEPS, max_size=12), st.lists(STEPS, max_size=30))
def test_every_storage_of_any_program_counts_once_at_every_moment_of_its_life(
    before: list[Any], within: list[Any]
) -> None:
    stories = Stories()
    with Ledger("cpu") as ledger:
        for number, step in enumerate(before, 1):
            stories.do(ledger.storages, step, number - len(before) - 1)
        stories.begin()
        ledger.storages.start_step()
        for moment, step in enumerate(within, 1):
            with ledger.storages.in_phase(str(moment)):
                stories.do(ledger.storages, step, moment)
            assert ledger.storages.live_bytes() == sum(stories.world.sizes().values())
        log = ledger.storages.end_step()
        while stories.world.tensors:
            stories.world.tensors.pop(len(stories.world.tensors) // 2)
            assert ledger.storages.live_bytes() == sum(stories.world.sizes().values())
        stories.world.modules.clear()
        assert ledger.storages.live_bytes() == 0
    account = Account(log)
    timeline = account.timeline()
    assert levels_after(timeline, -1) == stories.levels_at(0)
    for moment, phase in enumerate(timeline.phases, 1):
        assert levels_after(timeline, phase.end_event - 1) == stories.levels_at(moment)
    assert account.after_step == stories.levels_at(len(within))
    assert account.peak >= max(sum(stories.levels_at(at).values()) for at in range(len(within) + 1))
