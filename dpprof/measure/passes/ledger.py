"""The ledger pass: whose bytes fill the memory, and how many of them every phase moves.

A `TorchDispatchMode` sees each operator as autograd has taken it apart, from the model's creation on. It
accounts for every tensor storage, with what it is for, and for every byte that an operator reads and writes.
It never looks at data, so it works alike on CPU, CUDA and fake tensors.
"""

import importlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import TracebackType
from typing import Any, NamedTuple, Self

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode

from dpprof.config.experiment import ExperimentConfig
from dpprof.config.measuring import SAMPLED_WARMUP_STEPS
from dpprof.measure.observe import Observer, Subject, Training
from dpprof.measure.passes.account import Account
from dpprof.measure.passes.layer_calls import LayerCalls
from dpprof.measure.passes.modules import ModulePaths
from dpprof.measure.passes.storages import Storages
from dpprof.measure.passes.traffic import bytes_moved, flops, footprint, tensors_in
from dpprof.record.layers import LayerRow
from dpprof.record.ledger import CollectiveRow, LedgerResult, TrafficRow
from dpprof.vocabulary.loops import savings_to_measure
from dpprof.vocabulary.operator_classes import class_by_name, class_in_phase
from dpprof.vocabulary.parallel import COMMUNICATION, bytes_sent, collective_of

_OBSERVED_STEPS = 2
_DEVICE = torch.ops.prim.device.default
_MARKS = "profiler"  # the namespace of operators that only mark a place in a trace


def run(subject: Subject) -> None:
    """Keep the ledger of a first step and two more; of these the one with the higher peak counts."""
    config = subject.config
    kept = keep_ledger(
        subject.build, Ledger(config.device), _OBSERVED_STEPS, warmup_steps=warmup_steps(config)
    )
    subject.record.ledger = kept.result()
    subject.folder.write_ledger(subject.record.ledger, kept.account.timeline())


def warmup_steps(config: ExperimentConfig) -> int:
    """Steps before those that count, so that these begin with what a step like them leaves."""
    return SAMPLED_WARMUP_STEPS if config.poisson_sampling else 1


class Kept(NamedTuple):
    """The account, the traffic and the layers of a step, and how much lower the peak is with each saving."""

    account: Account
    traffic: list[TrafficRow]
    collectives: list[CollectiveRow]
    layers: list[LayerRow]
    saved: dict[str, int]

    def result(self) -> LedgerResult:
        """The figures that go into the record."""
        found = self.account.result(self.traffic)
        found.layers, found.collectives = self.layers, self.collectives
        return found


def keep_ledger(
    build: Callable[[], Training],
    ledger: "Ledger",
    num_steps: int,
    *,
    warmup_steps: int = 1,
    with_savings: bool = False,
) -> Kept:
    """Build a training, warm up, which also makes the optimizer's state, and then do `num_steps` steps.

    Gives what was kept of the one among these with the highest peak; `with_savings` does one more step for
    each saving that the loop leaves unmade. Under `FakeTensorMode` nothing is allocated.
    """
    with ledger:
        training = build()
        training.run(warmup_steps, LabellingObserver(ledger, training))
        kept = _highest(training, ledger, num_steps)
        for name, made in savings_to_measure(training.savings).items() if with_savings else ():
            training.save(made)
            kept.saved[name] = kept.account.peak - _highest(training, ledger, 1).account.peak
    return kept


def _highest(training: Training, ledger: "Ledger", num_steps: int) -> Kept:
    """Do some steps; what was kept of the one with the highest peak."""
    observer = LedgerObserver(ledger, training)
    training.run(num_steps, observer)
    assert observer.highest is not None, "no step was done"
    return observer.highest


class Ledger(TorchDispatchMode):
    """Counts the storages and the traffic of all operators called while it is entered, on one device type."""

    def __init__(self, device_type: str) -> None:
        super().__init__()
        self.storages = Storages(device_type)
        self.modules = ModulePaths(self._recomputing)
        self.layers = LayerCalls()
        self._rows: dict[tuple[str, str, str | None], TrafficRow] = {}
        self._collectives: dict[tuple[str, str | None], CollectiveRow] = {}
        self._counts = False
        self._distributed: type | None = None
        if dist.is_available() and dist.is_initialized():
            self._distributed = importlib.import_module("torch.distributed.tensor").DTensor

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """No: nothing is compiled here, and torch's way to see to it that nothing is takes time."""
        return False

    def __enter__(self) -> Self:
        self.modules.__enter__()
        self.storages.__enter__()
        self.layers.__enter__()
        super().__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        self.layers.__exit__(kind, error, trace)
        self.modules.__exit__(kind, error, trace)
        self.storages.__exit__(kind, error, trace)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operator and account for it. A distributed tensor first takes it apart into what this rank
        does.
        """
        if func is _DEVICE and isinstance(args[0], FakeTensor):  # asked for more often than operators run
            in_kernel = args[0].fake_mode.in_kernel_invocation
            return torch.device("meta") if in_kernel else args[0].fake_device
        if self._distributed is not None and any(issubclass(kind, self._distributed) for kind in types):
            return NotImplemented
        kwargs = kwargs or {}
        if func.namespace == _MARKS:
            with torch._C._DisableTorchDispatch():  # fake tensors would take long over it
                return func(*args, **kwargs)
        result = self.call(func, args, kwargs)
        name = func._schema.name
        if (collective := collective_of(name)) is not None:
            self._count_collective(collective, args, result)
        for tensor in tensors_in((result, *args, *kwargs.values())):
            self.storages.see(tensor, name, self.modules.current)
        if self._counts:
            self._count_traffic(func, name, args, kwargs, result)
        return result

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Surrounds what traffic and communication are counted of."""
        self._counts = True
        try:
            yield
        finally:
            self._counts = False

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operator; what it makes is accounted for when it returns."""
        return func(*args, **kwargs)

    def _count_traffic(
        self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> None:
        read, written = bytes_moved(func, args, kwargs, result)
        num_flops = flops(func, args, kwargs, result)
        if read or written or num_flops:
            phase = self.storages.phase
            class_name = class_in_phase(class_by_name(name), phase)
            key = (name, class_name, phase)
            row = self._rows.setdefault(key, TrafficRow(*key, calls=0, read=0, written=0, flops=0))
            row.calls += 1
            row.read += read
            row.written += written
            row.flops += num_flops

    def _count_collective(self, collective: str, args: tuple[Any, ...], result: Any) -> None:
        """Whatever it reads and writes, and is nothing else, is a buffer of communication. Its payload is the
        largest of its arguments and its result, the tensors of a list together.
        """
        for tensor in tensors_in(args):
            self.storages.expect(COMMUNICATION, tensor)
        if not self._counts:
            return
        row = self._collectives.setdefault(
            (collective, self.storages.phase), CollectiveRow(collective, self.storages.phase)
        )
        payload = max(sum(map(footprint, tensors_in((value,)))) for value in (*args, result))
        row.calls += 1
        row.payload += payload
        row.sent += bytes_sent(collective, payload, dist.get_world_size())

    def take_collectives(self) -> list[CollectiveRow]:
        """The rows counted since the last call."""
        rows, self._collectives = list(self._collectives.values()), {}
        return rows

    def take_traffic(self) -> list[TrafficRow]:
        """The rows counted since the last call, most bytes first."""
        rows, self._rows = list(self._rows.values()), {}
        return sorted(rows, key=lambda row: -(row.read + row.written))

    def _recomputing(self) -> AbstractContextManager[None]:
        """Surrounds a call of a module: outside forward it recomputes activations."""
        return (
            nullcontext()
            if self.storages.phase == "forward"
            else self.storages.label_surviving("activations")
        )


class LabellingObserver(Observer):
    """Tells the ledger of phases, and at the end of each of what the trainer holds. Keeps no account."""

    follows_tensors = True

    def __init__(self, ledger: Ledger, training: Training) -> None:
        self._ledger = ledger
        self._storages = ledger.storages
        self._training = training

    @contextmanager
    def step(self) -> Iterator[None]:
        """Labels what is held before and after."""
        self._ledger.modules.name(self._training.model)
        self._storages.label_held(self._training.held_tensors())
        yield
        self._storages.label_held(self._training.held_tensors())

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Keeps the span of a phase. What forward leaves alive, it leaves for backward: activations."""
        is_forward = self._ledger.layers.in_forward = name == "forward"
        surviving = self._storages.label_surviving("activations") if is_forward else nullcontext()
        with self._storages.in_phase(name), surviving:
            yield
        self._storages.label_held(self._training.held_tensors())

    def label(self, category: str, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        """These tensors belong to a category, and have done so since they were made."""
        self._storages.label(category, tensors)

    def label_new(
        self, category: str, accepts: Callable[[torch.Size], bool] | None = None
    ) -> AbstractContextManager[None]:
        """Surrounds what makes tensors of this category."""
        return self._storages.label_new(category, accepts)


class LedgerObserver(LabellingObserver):
    """Keeps the account of steps: `highest` is what was kept of the one with the highest peak; of others
    nothing is kept.
    """

    highest: Kept | None = None

    @contextmanager
    def step(self) -> Iterator[None]:
        """Keeps the account of a step."""
        self._ledger.layers.start_step(self._training.model)
        with self._ledger.counting(), super().step():
            self._storages.start_step()
            yield
        account = Account(self._storages.end_step())
        traffic, collectives = self._ledger.take_traffic(), self._ledger.take_collectives()
        if self.highest is None or account.peak > self.highest.account.peak:
            layers = self._ledger.layers.rows(self._training.norm_costs)
            self.highest = Kept(account, traffic, collectives, layers, {})
