"""The two clocks of a step: the GPU waits for its host, and the host for the GPU where the program does."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from example_runs import known
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from dpprof.config.devices import DEVICES
from dpprof.config.issue_times import ISSUE_US, PROCESSORS, IssueTimes
from dpprof.measure.passes.estimate_ledger import CudaLedger
from dpprof.measure.passes.predictor import predictor_of
from dpprof.measure.passes.step_clock import HOST_DOUBT, StepClock
from dpprof.measure.passes.transforms import Transforms
from dpprof.record.ledger import PhaseTime

# Every piece of work takes a second.
SECOND = IssueTimes(*[1e6] * len(dataclasses.fields(IssueTimes)))
_aten = torch.ops.aten


def issued(clock: StepClock, phase: str, seconds: float, number: int = 1) -> None:
    """Issue light operators that take so long on the GPU."""
    for _ in range(number):
        clock.operator(phase, _aten.add.Tensor, ())
        clock.run(phase, seconds, seconds, seconds)


def test_the_slower_of_both_sets_the_pace() -> None:
    clock = StepClock(SECOND)
    issued(clock, "forward", 0.25, number=4)
    issued(clock, "backward", 5.0, number=2)
    found = clock.end()
    assert found["forward"].seconds == pytest.approx(4 + 0.25), "the last kernel begins when it is issued"
    assert found["backward"].seconds == pytest.approx(0.75 + 2 * 5.0), "the first one does so too"
    assert (found["forward"].operators, found["backward"].host_s) == (4, 2.0)


def test_the_host_runs_ahead_into_later_phases_but_not_past_a_wait() -> None:
    times = []
    for waits in (False, True):
        clock = StepClock(SECOND)
        issued(clock, "backward", 10.0)
        if waits:
            clock.wait()
        issued(clock, "noise", 0.1, number=3)
        times.append(clock.end()["noise"].seconds)
    ahead, behind = times
    assert ahead == pytest.approx(0.3)
    assert behind == pytest.approx(3.1)


def test_the_range_has_a_host_twice_as_fast_and_one_twice_as_slow() -> None:
    clock = StepClock(SECOND)
    issued(clock, "noise", 1e-9, number=3)
    found = clock.end()["noise"]
    assert found.least_s == pytest.approx(found.seconds / HOST_DOUBT, rel=1e-6)
    assert found.most_s == pytest.approx(found.seconds * HOST_DOUBT, rel=1e-6)


def test_a_step_begins_anew_and_what_lies_between_phases_is_in_none() -> None:
    clock = StepClock(SECOND)
    issued(clock, "forward", 1.0)
    assert clock.end()
    clock.begin()
    clock.operator(None, _aten.add.Tensor, ())
    assert clock.end() == {}


def test_a_processor_has_one_clock() -> None:
    clock = StepClock(None)
    clock.module("forward", nn.Linear(1, 1))
    issued(clock, "forward", 2.0, number=2)
    assert clock.end() == {"forward": PhaseTime(4.0, 4.0, 4.0)}


def work(program: Callable[[StepClock], object]) -> float:
    """Return the host's seconds in a program's operators, where each piece of work takes one."""
    clock = StepClock(SECOND)

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            clock.operator("step", func, args)
            return func(*args, **(kwargs or {}))

        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return False

    with Mode():
        program(clock)
    return clock.end()["step"].host_s


def test_work_goes_by_what_is_issued_and_who_issues_it() -> None:
    x = torch.ones(3, 4)
    assert work(lambda _: x.view(4, 3)) == 1, "a view"
    assert work(lambda _: x + 1) == 1, "a light operator"
    assert work(lambda _: torch._foreach_mul([x, x, x], 2.0)) == 1 + 3, "three tensors in its list"
    images, weight = torch.ones(1, 1, 4, 4), torch.ones(1, 1, 3, 3)
    assert work(lambda _: torch.conv2d(images, weight)) == 2, "a heavy one, and cuDNN's choice"


def test_autograd_takes_a_node_for_each_operator_but_hooks_call_them_as_programs_do() -> None:
    def backward(hook: Callable[[Tensor], Tensor] | None) -> float:
        x = torch.ones(3, requires_grad=True)
        doubled = x * 2
        if hook is not None:
            doubled.register_hook(hook)
        total = doubled.sum()
        return work(lambda _: total.backward())

    assert backward(lambda gradient: gradient * 3) - backward(None) == 1


def test_a_view_takes_no_node_where_autograd_makes_it() -> None:
    x = torch.ones(3, 4, requires_grad=True)
    viewed, doubled = x.view(4, 3), 2 * x
    of_view, of_product = torch.ones(4, 3), torch.ones(3, 4)
    assert work(lambda _: torch.autograd.grad(viewed, x, of_view)) == 1
    assert work(lambda _: torch.autograd.grad(doubled, x, of_product)) == 2, "an operator and its node"


def test_a_module_takes_its_call_and_each_of_its_hooks() -> None:
    clock, module = StepClock(SECOND), nn.Linear(1, 1)
    module.register_forward_hook(lambda *_: None)
    module.register_forward_pre_hook(lambda *_: None)
    clock.module("forward", module)
    assert clock.end()["forward"].host_s == 3.0


@pytest.mark.parametrize(
    ("operator", "args", "waits"),
    [
        (_aten.index.Tensor, (torch.ones(2), [torch.tensor([0, 1])]), False),
        (_aten.index.Tensor, (torch.ones(2), [torch.tensor([True, False])]), True),
        (_aten._local_scalar_dense.default, (torch.ones(1),), True),
    ],
)
def test_only_a_value_and_a_result_whose_size_depends_on_data_are_waited_for(
    operator: Any, args: tuple[Any, ...], waits: bool
) -> None:
    clock = StepClock(SECOND)
    issued(clock, "forward", 10.0)
    clock.wait_for(operator, args)
    issued(clock, "noise", 0.5)
    assert clock.end()["noise"].seconds == pytest.approx(1.5 if waits else 0.5)


def test_hosts_go_by_their_measurement_or_by_the_year_of_their_processor() -> None:
    new, old = IssueTimes.of("H100"), IssueTimes.of("V100-32GB")
    assert new == IssueTimes()
    assert old.light == pytest.approx(PROCESSORS["2017"] * new.light)
    assert IssueTimes.of("none") == new
    assert IssueTimes.of("V100-32GB", 2 * ISSUE_US).hook == pytest.approx(2 * new.hook)


def test_each_transform_takes_its_call_and_adds_to_what_is_issued_within_it() -> None:
    clock = StepClock(SECOND)
    clock.transform("backward")
    for operator in (_aten.add.Tensor, _aten.view.default):
        clock.operator("backward", operator, (), levels=2)
    found = clock.end()["backward"]
    assert (found.host_s, found.operators) == (1 + 3 + 3, 1)
    on_processor = StepClock(None)
    on_processor.transform("backward")
    assert on_processor.end() == {}


def test_transforms_are_counted_while_the_program_is_in_them() -> None:
    called, seen = [], []

    def squared(x: Tensor) -> Tensor:
        seen.append(transforms.levels)
        return (x * x).sum()

    x = torch.ones(2, 3)
    with Transforms(lambda: called.append(len(called))) as transforms:
        squared(x)
        torch.func.vmap(squared)(x)
        torch.func.vmap(torch.func.grad(squared))(x)
        torch.func.vjp(squared, x)
        with pytest.raises(RuntimeError):
            torch.func.vmap(lambda _: x.view(5))(x)
        assert transforms.levels == 0
    torch.func.vmap(squared)(x)
    assert seen == [0, 1, 2, 1, 0]
    assert len(called) == 1 + 2 + 1 + 1


def test_a_ledger_counts_transforms_where_it_counts_operators() -> None:
    def host_s(program: Callable[[Tensor], Tensor]) -> float:
        predictor = known(predictor_of("H100"))
        with CudaLedger("cpu", DEVICES["H100"], predictor) as ledger:
            program(x)
            with ledger.counting(), ledger.storages.in_phase("backward"):
                program(x)
        return predictor.clock.end()["backward"].host_s

    x, times = torch.ones(2, 3), IssueTimes.of("H100")
    more = host_s(torch.func.vmap(torch.neg)) - host_s(torch.neg)
    assert more == pytest.approx((times.transform + times.level) / 1e6)


@pytest.mark.parametrize("synchronises", [False, True])
def test_a_ledger_s_host_waits_where_the_program_synchronises(synchronises: bool) -> None:
    predictor = known(predictor_of("V100-32GB"))
    large, small = torch.ones(1024, 1024), torch.ones(4)
    calls = torch.cuda.synchronize
    with CudaLedger("cpu", DEVICES["V100-32GB"], predictor) as ledger, ledger.counting():
        with ledger.storages.in_phase("forward"):
            for _ in range(4):
                large = large @ large
        if synchronises:
            torch.cuda.synchronize()
        with ledger.storages.in_phase("noise"):
            for _ in range(8):
                small = small + 1
    assert torch.cuda.synchronize is calls
    found = predictor.clock.end()
    assert [found[phase].operators for phase in ("forward", "noise")] == [4, 8]
    assert found["forward"].seconds > 4 * 2 * 1024**3 / 15e12, "four products"
    host_s = 8 * IssueTimes.of("V100-32GB").light / 1e6
    assert (found["noise"].seconds > 0.9 * host_s) == synchronises
