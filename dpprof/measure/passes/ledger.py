"""The ledger pass: whose bytes fill the memory, and how many bytes every phase moves.

A `TorchDispatchMode` sees each operator below autograd, from the model's creation on. It accounts for every
tensor storage with its purpose, and for every byte that an operator reads and writes. It never looks at data,
so it works alike on CPU, CUDA and fake tensors.
"""

import importlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any, NamedTuple, Protocol, Self
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode

from dpprof.config.experiment import ExperimentConfig
from dpprof.config.measuring import SAMPLED_WARMUP_STEPS
from dpprof.measure.guard import Guard
from dpprof.measure.observe import Observer
from dpprof.measure.passes.account import Account
from dpprof.measure.passes.accumulation import is_in_place, references_of_last
from dpprof.measure.passes.modules import ModuleCalls
from dpprof.measure.passes.operator_call import call_of
from dpprof.measure.passes.predictor import Predictor
from dpprof.measure.passes.storages import Storages
from dpprof.measure.passes.traffic import PRODUCTS, Cache, bytes_moved, flops, footprint, operands, tensors_in
from dpprof.measure.passes.transforms import Transforms
from dpprof.measure.trainers.base import Held
from dpprof.measure.trainers.training import Training
from dpprof.record.ledger import CollectiveRow, LedgerResult, TrafficRow
from dpprof.vocabulary.loops import savings_to_measure
from dpprof.vocabulary.norm_forms import NormCost
from dpprof.vocabulary.operator_classes import class_by_name, class_in_phase
from dpprof.vocabulary.parallel import COMMUNICATION, DDP, bytes_sent, collective_of
from dpprof.vocabulary.trainers import trainer_info

_DEVICE = torch.ops.prim.device.default
_SHAPES_ALONE = {"_propagate_tensor_meta_non_cached"}
_MARKS = "profiler"  # the namespace of operators that only mark a place in a trace


def warmup_steps(config: ExperimentConfig) -> int:
    """Return the number of steps to do before those that count, which then start from a typical state.

    In its second step, torch's DDP rebuilds its buckets, once in a whole training, and ranks agree on them.
    """
    if config.poisson_sampling:
        return SAMPLED_WARMUP_STEPS + config.is_estimate  # the last one has the size of those that count
    return 2 if config.parallel == DDP and not trainer_info(config.trainer).is_private else 1


class Kept(NamedTuple):
    """A step, its figures for the record, and the bytes by which each saving lowers its peak."""

    account: Account
    result: LedgerResult
    saved: dict[str, int]
    times_of: str = ""


def keep_ledger(
    build: Callable[[], Training],
    ledger: "Ledger",
    num_steps: int,
    *,
    warmup_steps: int = 1,
    with_savings: bool = False,
) -> Kept:
    """Build a training, warm up, do `num_steps` steps and keep the one with the highest peak.

    The warm-up also makes the optimizer's state. `with_savings` does one more step for each saving that the
    loop does not make, of which only the peak is asked. Under `FakeTensorMode` nothing is allocated.
    """
    with ledger:
        training = build()
        training.run(warmup_steps, LabellingObserver(ledger, training))
        kept = _highest(training, ledger, num_steps)
        kept.result.from_allocator = ledger.from_allocator(kept.account)
        for name, made in savings_to_measure(training.trainer.savings).items() if with_savings else ():
            training.trainer.save(made)
            observer = PeakObserver(ledger, training)
            training.run(1, observer)
            kept.saved[name] = kept.account.peak - observer.peak
    return kept


def _highest(training: Training, ledger: "Ledger", num_steps: int) -> Kept:
    observer = LedgerObserver(ledger, training)
    training.run(num_steps, observer)
    assert observer.highest is not None, "no step was done"
    return observer.highest


class Ledger(TorchDispatchMode):
    """Counts the storages and the traffic of all operators called while it is entered.

    Only storages on `device_type` count; `l2_bytes` is the size of its last-level cache, 0 if unknown. A
    `predictor` predicts the operators' times; what fails in hooks is the `guard`'s.
    """

    def __init__(
        self,
        device_type: str,
        l2_bytes: int = 0,
        predictor: Predictor | None = None,
        guard: Guard | None = None,
    ) -> None:
        super().__init__()
        references_of_last()  # found before any step
        self.storages = Storages(device_type, guard)
        self._cache = Cache(l2_bytes) if l2_bytes else None
        self.predictor = predictor
        self.modules = ModuleCalls(self._recomputing, guard, self._call_module)
        self._transforms = Transforms(self._call_transform)
        self._rows: dict[tuple[str, str, str | None], TrafficRow] = {}
        self._collectives: dict[tuple[str, str | None], CollectiveRow] = {}
        self._counts = False
        self._distributed: type | None = None
        if dist.is_available() and dist.is_initialized():
            self._distributed = importlib.import_module("torch.distributed.tensor").DTensor
        self._only_shapes = False

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False: nothing is compiled here, and torch's guard against compiling takes time."""
        return False

    def __enter__(self) -> Self:
        self._entered = ExitStack()
        if self._distributed is not None:
            # How distributed tensors find the shape of a result: on fake tensors of the whole, once for each.
            owner = importlib.import_module("torch.distributed.tensor._sharding_prop").ShardingPropagator
            for name in _SHAPES_ALONE & vars(owner).keys():
                self._entered.enter_context(patch.object(owner, name, self._apart(getattr(owner, name))))
        self._entered.enter_context(self.modules)
        self._entered.enter_context(self._transforms)
        self._entered.enter_context(self.storages)
        super().__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._entered.close()

    def _apart(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **kwargs: Any) -> Any:
            with patch.object(self, "_only_shapes", True):
                return function(*args, **kwargs)

        return called

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operator and account for it. Distributed tensors first reduce it to this rank's part."""
        if func is _DEVICE and isinstance(args[0], FakeTensor):  # asked for more often than operators run
            in_kernel = args[0].fake_mode.in_kernel_invocation
            return torch.device("meta") if in_kernel else args[0].fake_device
        if self._distributed is not None and any(issubclass(kind, self._distributed) for kind in types):
            return NotImplemented
        kwargs = kwargs or {}
        if self._only_shapes:
            return func(*args, **kwargs)
        if func.namespace == _MARKS:
            with torch._C._DisableTorchDispatch():  # slow with fake tensors
                return func(*args, **kwargs)
        in_place = is_in_place(func, args)
        result = self.call(func, args, kwargs)
        name = func._schema.name
        if (collective := collective_of(name)) is not None:
            self._count_collective(collective, args, result)
        if in_place:
            self.storages.take_over(args[0], result)
        see, module_now = self.storages.see, self.modules.current
        for tensor in tensors_in((result, *args, *kwargs.values())):
            see(tensor, name, module_now)
        if self._counts:
            clock = self.predictor.clock if self.predictor is not None else None
            if clock is not None:
                clock.operator(self.storages.phase, func, args, self._transforms.levels)
            self._count_traffic(func, name, args, kwargs, result)
            if clock is not None:
                clock.wait_for(func, args)
        return result

    def counting(self) -> AbstractContextManager[Any]:
        """Count traffic and communication while entered."""
        return patch.object(self, "_counts", True)

    def from_allocator(self, account: Account) -> dict[str, int]:
        """Return the bytes by name that torch's allocator adds to a step's peak, where that is computed."""
        return {}

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operator; its results are accounted for when it returns."""
        return func(*args, **kwargs)

    def _count_traffic(
        self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> None:
        tensors = operands(func, args, kwargs, result)
        read, written = bytes_moved(func, args, result, tensors)
        num_flops = flops(func, args, kwargs, result)
        if read or written or num_flops:
            phase = self.storages.phase
            class_name = class_in_phase(class_by_name(name), phase)
            key = (name, class_name, phase)
            row = self._rows.get(key)
            if row is None:
                row = self._rows[key] = TrafficRow(*key, calls=0, read=0, written=0, flops=0)
            row.calls += 1
            row.read += read
            row.written += written
            row.flops += num_flops
            if func._overloadpacket in PRODUCTS:
                self.modules.note_product()
                row.fp32_flops += num_flops * (args[0].dtype is torch.float32)
            cached = 0
            if self._cache is not None and (read or written):
                cached = read + written - self._cache.traffic(self.storages, tensors, read, written)
                row.cached += cached
            if self.predictor is not None:
                given = (*args, *kwargs.values())
                self.predictor.add(call_of(name, given, read + written, num_flops), row, cached)

    def _count_collective(self, collective: str, args: tuple[Any, ...], result: Any) -> None:
        """Count a collective, and label its otherwise unlabelled arguments as communication buffers."""
        for tensor in tensors_in(args):
            self.storages.expect(COMMUNICATION, tensor)
        if not self._counts:
            return
        key = (collective, self.storages.phase)
        row = self._collectives.setdefault(key, CollectiveRow(*key))
        payload = max(sum(map(footprint, tensors_in((value,)))) for value in (*args, result))
        row.calls += 1
        row.payload += payload
        row.sent += bytes_sent(collective, payload, dist.get_world_size())
        if self.predictor is not None:
            self.predictor.add_collective(payload, dist.get_world_size(), row)

    def take_collectives(self) -> list[CollectiveRow]:
        """Return the rows counted since the last call."""
        rows, self._collectives = list(self._collectives.values()), {}
        return rows

    def take_traffic(self) -> list[TrafficRow]:
        """Return the rows counted since the last call, most bytes first."""
        rows, self._rows = list(self._rows.values()), {}
        return sorted(rows, key=lambda row: -(row.read + row.written))

    def _call_module(self, module: nn.Module) -> None:
        if self._counts and self.predictor is not None:
            self.predictor.clock.module(self.storages.phase, module)

    def _call_transform(self) -> None:
        if self._counts and self.predictor is not None:
            self.predictor.clock.transform(self.storages.phase)

    def _recomputing(self) -> AbstractContextManager[None]:
        """Label what a module recomputes outside forward, and survives its call, as activations."""
        if self.storages.phase == "forward":
            return nullcontext()
        return self.storages.label_surviving("activations")


class Followed(Protocol):
    """Names what a ledger asks of a training."""

    @property
    def model(self) -> nn.Module:
        """The model that is trained."""

    def held_tensors(self) -> Held:
        """Return the tensors held now, by category."""

    def norm_costs(self) -> dict[str, NormCost]:
        """Return the form of each weight's norm in the last step, by parameter, if there is a choice."""


class LabellingObserver(Observer):
    """Tells the ledger of phases, and after each of the tensors that the trainer holds."""

    follows_tensors = True

    def __init__(self, ledger: Ledger, training: Followed) -> None:
        self._ledger = ledger
        self._storages = ledger.storages
        self._training = training

    @contextmanager
    def step(self) -> Iterator[None]:
        """Label the tensors held before and after a step."""
        self._ledger.modules.name(self._training.model)
        self._storages.label_held(self._training.held_tensors())
        yield
        self._storages.label_held(self._training.held_tensors())

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Record a phase. Tensors that forward leaves alive, for backward, are activations."""
        is_forward = self._ledger.modules.in_forward = name == "forward"
        surviving = self._storages.label_surviving("activations") if is_forward else nullcontext()
        with self._storages.in_phase(name), surviving:
            yield
        self._storages.label_held(self._training.held_tensors())

    def label(self, category: str, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Assign tensors to a category, from their creation on."""
        self._storages.label(category, tensors)

    def label_new(
        self, category: str, accepts: Callable[[torch.Size], bool] | None = None
    ) -> AbstractContextManager[None]:
        """Assign tensors made inside to a category."""
        return self._storages.label_new(category, accepts)


class PeakObserver(LabellingObserver):
    """Finds the peak of a step, in bytes, and nothing else."""

    peak = 0

    @contextmanager
    def step(self) -> Iterator[None]:
        """Log a step without traffic."""
        with super().step():
            self._storages.start_step()
            yield
        self.peak = self._storages.end_step().peak


class LedgerObserver(LabellingObserver):
    """Keeps only the account of the step with the highest peak, as `highest`."""

    highest: Kept | None = None

    @contextmanager
    def step(self) -> Iterator[None]:
        """Keep the account of a step."""
        if self._ledger.predictor is not None:
            self._ledger.predictor.assumed.clear()
            self._ledger.predictor.clock.begin()
        with self._ledger.counting(), super().step():
            self._storages.start_step()
            yield
        predictor = self._ledger.predictor
        phase_s = predictor.clock.end() if predictor is not None else {}
        account = Account(self._storages.end_step())
        traffic, collectives = self._ledger.take_traffic(), self._ledger.take_collectives()
        if self.highest is None or account.peak > self.highest.account.peak:
            result = account.result(traffic)
            result.collectives = collectives
            result.layers = self._ledger.modules.rows(self._training.norm_costs())
            if predictor is not None:
                result.assumed_s, result.phase_s = dict(predictor.assumed), phase_s
            self.highest = Kept(account, result, {}, predictor.source if predictor else "")
