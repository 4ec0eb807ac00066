"""Follows tensor storages from birth to death, with the purpose of each.

A storage is a block of torch's allocator; any number of tensors may be views of it. It is followed through a
weak reference, which does not keep it alive. No data is read, so fake tensors work as well as real ones.
"""

import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from typing import Any, Self

import torch
from torch import Tensor

from dpprof.measure.guard import Guard
from dpprof.record.ledger import PhaseMark


@dataclass(slots=True, eq=False)
class Life:
    """One storage: its size, its origin and its purpose.

    `shape` and `dtype` are those of the first tensor over it, or of the labelled one. `category` is None
    while unknown. The first label holds from birth on: `first_category`. `is_labelled` is False for a
    category that was only expected (`Storages.label_new`). `number` is that of its birth, and `line` the
    one of the program, if somebody looks for it (`Storages.line_now`).
    """

    num_bytes: int
    shape: tuple[int, ...]
    dtype: str
    operator: str
    phase: str | None
    module: str
    name: str = ""
    category: str | None = None
    first_category: str | None = None
    is_labelled: bool = False
    alive: bool = True
    number: int = 0
    line: str = ""
    reference: Any = None


@dataclass(slots=True)
class Event:
    """A change of a category's bytes: a birth, a death, a resizing, or a move to another category."""

    at: float
    life: Life
    num_bytes: int
    category: str | None = None


@dataclass
class StepLog:
    """The history of storages in one step; `present` are those alive at its start, with their bytes.

    Times, also those of `phases`, are the clock's. `first_change` and `end_change` are its range of
    `Storages.changes`.
    """

    start: float
    present: list[tuple[Life, int]]
    events: list[Event] = field(default_factory=list)
    phases: list[PhaseMark] = field(default_factory=list)
    end: float = 0.0
    first_change: int = 0
    end_change: int = 0

    @property
    def peak(self) -> int:
        """Most bytes alive at any moment of the step."""
        began = sum(num_bytes for _, num_bytes in self.present)
        changes = (event.num_bytes for event in self.events if event.category is None)
        return max(accumulate(changes, initial=began))


class Storages:
    """The storages of one device. They may die in any thread.

    Sparse tensors and memory that torch did not allocate (`torch.from_numpy`) are left out.
    """

    def __init__(self, device_type: str, guard: Guard | None = None) -> None:
        self._device_type, self._guard = device_type, guard or Guard()
        self._died = self._guard.hook(self._die)
        self._live: dict[int, Life] = {}
        self._expected: list[tuple[str, Callable[[torch.Size], bool] | None]] = []
        self._newborn: list[list[Life]] = []
        self._log: StepLog | None = None
        self.num_born = 0
        self._left_out: dict[int, Any] = {}
        self.line_now: Callable[[], str] = str
        self.phase: str | None = None
        # Every storage's number and its bytes from then on, 0 when it is freed, since the beginning.
        self.changes: list[tuple[int, int]] = []

    def live_bytes(self) -> int:
        """Return the bytes of all storages alive now."""
        return sum(life.num_bytes for life in self.alive())

    def alive(self) -> set[Life]:
        """Return all storages alive now."""
        return set(self._live.values())

    def _next_number(self) -> int:
        self.num_born += 1
        return self.num_born - 1

    def __enter__(self) -> Self:
        self._resize = resize = torch.UntypedStorage.resize_
        resized = self._guard.around(self._resized)

        def resize_(storage: torch.UntypedStorage, size: int) -> Any:
            return resized(resize, storage, size)

        torch.UntypedStorage.resize_ = resize_  # type: ignore[method-assign, assignment]
        return self

    def __exit__(self, *error: object) -> None:
        torch.UntypedStorage.resize_ = self._resize  # type: ignore[method-assign]
        for life in list(self._live.values()):
            life.reference = None
        self._live.clear()

    def _resized(self, resize: Callable[..., Any], storage: torch.UntypedStorage, size: int) -> Any:
        """Follow a storage's `resize_`, which is no operator: FSDP empties and fills storages with it."""
        result = resize(storage, size)
        life = self._live.get(storage._cdata)
        if life is not None:
            self._follow_size(life, storage.nbytes())
        return result

    def _follow_size(self, life: Life, num_bytes: int) -> None:
        if life.num_bytes != num_bytes:
            change = num_bytes - life.num_bytes
            life.num_bytes = num_bytes
            self._note(life, change)

    def see(self, tensor: Tensor, operator: str = "", module_now: Callable[[], str] = str) -> Life | None:
        """Return the life of a tensor's storage; a new one is born now, in the module `module_now()`."""
        if tensor.layout is not torch.strided:
            return None
        storage = tensor.untyped_storage()
        key, num_bytes = storage._cdata, storage.nbytes()
        life = self._live.get(key)
        if life is None:
            if key in self._left_out:
                return None
            # Only checked at births: a fake tensor looks its device up by way of every mode.
            elsewhere = tensor.device.type != self._device_type
            if elsewhere or num_bytes == 0 or not storage.resizable():
                return None
            life = Life(num_bytes, *_form(tensor), operator, self.phase, module_now())
            life.number, life.line = self._next_number(), self.line_now()
            life.reference = weakref.ref(storage, partial(self._died, key, life))
            self._live[key] = life
            for category, accepts in reversed(self._expected):
                if accepts is None or accepts(tensor.shape):
                    life.category = life.first_category = category
                    break
            if self._newborn:
                self._newborn[-1].append(life)
            self._note(life, num_bytes)
        elif life.num_bytes != num_bytes:
            self._follow_size(life, num_bytes)
        return life

    def take_over(self, tensor: Tensor, by: Tensor) -> None:
        """Go on with a tensor's storage as that of another one, of the same size."""
        old, new = (one.untyped_storage() for one in (tensor, by))
        life = self._live.get(old._cdata)
        if life is not None:
            self._live[new._cdata] = life
            # The old one may be seen again until it is gone, which is not this life's end.
            gone = weakref.ref(old, partial(self._forget, old._cdata, life))
            life.reference = weakref.ref(new, partial(self._died, new._cdata, life)), gone

    def _forget(self, key: int, life: Life, _: object) -> None:
        if self._live.get(key) is life:
            del self._live[key]

    def take_for_a_moment(self, sizes: Iterable[int], operator: str, module: str) -> None:
        """Log bytes that an operator takes internally and gives back: of each buffer, all held together."""
        lives = [
            Life(size, (size,), "uint8", operator, self.phase, module, number=self._next_number())
            for size in sizes
        ]
        for life in lives:
            self._note(life, life.num_bytes)
        for life in reversed(lives):
            life.alive = False
            self._note(life, -life.num_bytes)

    def take_for_good(self, num_bytes: int) -> None:
        """Take bytes that belong to no tensor, and that no step's log has."""
        self.changes.append((self._next_number(), num_bytes))

    def _die(self, key: int, life: Life, _: object) -> None:
        taken_over = isinstance(life.reference, tuple)
        for one in [k for k, held in self._live.items() if held is life] if taken_over else [key]:
            self._forget(one, life, None)
        life.alive = False
        life.reference = None
        self._note(life, -life.num_bytes)

    def _note(self, life: Life, num_bytes: int, category: str | None = None) -> None:
        if category is None:
            self.changes.append((life.number, life.num_bytes if life.alive else 0))
        if self._log is not None:
            self._log.events.append(Event(time.perf_counter(), life, num_bytes, category))

    def label(self, category: str, tensors: Iterable[tuple[str, Tensor]]) -> None:
        """Assign named tensors to a category. The first label holds from birth on."""
        for name, tensor in tensors:
            life = self.see(tensor)
            if life is not None:
                self._set_label(life, category, name, tensor)

    def expect(self, category: str, tensor: Tensor) -> None:
        """Assign a tensor to a category, unless it is labelled now or later."""
        life = self.see(tensor)
        if life is not None and not life.is_labelled:
            life.category = life.first_category = category

    def label_held(self, held: dict[str, list[tuple[str, Tensor]]]) -> None:
        """Label the tensors that a trainer holds. A storage in two categories belongs to the first."""
        done: set[int] = set()
        for category, tensors in held.items():
            for name, tensor in tensors:
                life = self.see(tensor)
                if life is not None and id(life) not in done:
                    done.add(id(life))
                    self._set_label(life, category, name, tensor)

    def leave_out(self, tensor: Tensor) -> None:
        """Follow a tensor's storage no more, as if it had never been on the device. Not within a step."""
        assert self._log is None, "a step's log counts on its changes"
        storage = tensor.untyped_storage()
        key, life = storage._cdata, self._live.pop(storage._cdata, None)
        self._left_out[key] = weakref.ref(storage, lambda _: self._left_out.pop(key, None))
        if life is not None:
            life.reference = None
            self.changes = [change for change in self.changes if change[0] != life.number]

    def _set_label(self, life: Life, category: str, name: str, tensor: Tensor) -> None:
        life.name = name or life.name
        if not life.is_labelled:
            life.shape, life.dtype = _form(tensor)
            life.category = life.first_category = category
            life.is_labelled = True
        elif life.category != category:
            life.category = category
            self._note(life, 0, category)

    @contextmanager
    def label_new(self, category: str, accepts: Callable[[torch.Size], bool] | None = None) -> Iterator[None]:
        """Assign storages born inside, of an accepted shape, to a category unless they are labelled."""
        self._expected.append((category, accepts))
        try:
            yield
        finally:
            self._expected.pop()

    @contextmanager
    def label_surviving(self, category: str) -> Iterator[None]:
        """Assign unlabelled storages that are born inside and outlive it to a category."""
        born: list[Life] = []
        self._newborn.append(born)
        try:
            yield
        finally:
            self._newborn.pop()
            for life in born:
                if life.alive and life.category is None:
                    life.category = life.first_category = category

    def start_step(self) -> None:
        """Begin a step's log. Storages alive now keep their last known category."""
        present = []
        for life in list(self._live.values()):
            life.first_category = life.category
            present.append((life, life.num_bytes))
        self._log = StepLog(time.perf_counter(), present, first_change=len(self.changes))

    def end_step(self) -> StepLog:
        """End the step and return its log."""
        assert self._log is not None, "no step has begun"
        log, self._log = self._log, None
        log.end, log.end_change = time.perf_counter(), len(self.changes)
        return log

    @contextmanager
    def in_phase(self, name: str) -> Iterator[None]:
        """Assign storages born inside to this phase, and log its span."""
        outer, self.phase = self.phase, name
        start, first = time.perf_counter(), self._num_events()
        try:
            yield
        finally:
            self.phase = outer
            if self._log is not None:
                end = time.perf_counter()
                self._log.phases.append(PhaseMark(name, start, end, first, self._num_events()))

    def _num_events(self) -> int:
        return len(self._log.events) if self._log is not None else 0


def _form(tensor: Tensor) -> tuple[tuple[int, ...], str]:
    return tuple(tensor.shape), str(tensor.dtype).removeprefix("torch.")
