"""Whatever fails in dpprof while a loop is measured, the loop goes on as it does without."""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from example_loops import made_private
from example_runs import known
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, record_function
from torch.profiler import profile as torch_profile
from torch.utils.data import DataLoader, TensorDataset

import dpprof
from dpprof import own_loop
from dpprof.errors import DpprofError
from dpprof.measure.guard import LoopGuard
from dpprof.measure.own_loop import loop as loops
from dpprof.measure.own_loop import passes
from dpprof.measure.own_loop.findings import LoopFindings
from dpprof.measure.own_loop.ledger import FromSecondStep
from dpprof.measure.passes import clean, trace
from dpprof.record.folder import RunFolder
from dpprof.record.record import PassStatus, Record

FAULT = "broken on purpose"
STEPS = 14  # of the passes together, and some more
# Those that only a private loop has, beside all others.
OF_PRIVATE = {"LabellingObserver.label", "Marks._in.<locals>.called"}


def train(measured: AbstractContextManager[Any] | None = None, *, is_private: bool = False) -> list[float]:
    """Return the losses of a loop with everything that is hooked."""
    torch.manual_seed(0)
    model: Any = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.1)
    batches: Any = DataLoader(TensorDataset(torch.randn(4 * STEPS, 4)), batch_size=4)
    if is_private:
        model, optimizer, batches = made_private(model, batches.dataset.tensors, 4, noise_multiplier=0.0)
    losses = []

    def backward(values: Tensor) -> Any:
        optimizer.zero_grad()
        with record_function("mine"):
            loss = model(values).square().mean()
        torch.ones(3).untyped_storage().resize_(4)
        with dpprof.phase("back"):
            loss.backward()
        return loss

    with measured or nullcontext():
        for (values,) in batches:
            if is_private:
                loss = backward(values)
                optimizer.step()
            else:
                loss = optimizer.step(lambda values=values: backward(values))
            losses.append(loss.item())
    return losses


def measuring(path: Path) -> dpprof.profile:
    return dpprof.profile(warmup_steps=1, measured_steps=1, runs_dir=path, by_optimizer=True)


def record_of(measured: dpprof.profile) -> Record:
    return known(measured.result.record)


def broken(names: set[str], *, fails_after: bool) -> Callable[..., Any]:
    """Return what calls dpprof's hooks, but for those with these names, which fail."""

    def own(_: LoopGuard, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        is_broken = function.__qualname__ in names
        if is_broken and not fails_after:
            raise RuntimeError(FAULT)
        result = function(*args, **kwargs)
        if is_broken:
            raise RuntimeError(FAULT)
        return result

    return own


def hooks_of(path: Path, monkeypatch: pytest.MonkeyPatch, *, is_private: bool = False) -> set[str]:
    """Return the names of what a loop calls of dpprof's, while nothing fails."""
    seen: set[str] = set()

    def own(_: LoopGuard, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        seen.add(function.__qualname__)
        return function(*args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(LoopGuard, "own", own)
        measured = measuring(path)
        train(measured, is_private=is_private)
    assert {one.status for one in record_of(measured).passes.values()} == {PassStatus.FINISHED}
    return seen


def reasons_of(measured: dpprof.profile) -> str:
    """Return why something was not measured."""
    try:
        reasons = [str(one.reason) for one in record_of(measured).passes.values()]
    except DpprofError as error:  # it failed in the warm-up
        reasons = [str(error)]
    return " ".join([*reasons, measured.failure])


@pytest.mark.parametrize(
    ("is_private", "fails_after"),
    [(False, False), (False, True), (True, False)],
    ids=["before", "after", "before_in_a_private_loop"],
)
def test_a_fault_in_any_hook_leaves_the_loop_as_it_is(
    is_private: bool, fails_after: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses, names = train(is_private=is_private), hooks_of(tmp_path, monkeypatch, is_private=is_private)
    assert {name.partition(".")[0] for name in names} >= {"Marks", "LoopFindings", "ModuleCalls", "Storages"}
    assert (names >= OF_PRIVATE) == is_private
    for name in OF_PRIVATE if is_private else names:
        with monkeypatch.context() as patched:
            patched.setattr(LoopGuard, "own", broken({name}, fails_after=fails_after))
            measured = measuring(tmp_path)
            assert train(measured, is_private=is_private) == losses, name
        assert FAULT in reasons_of(measured), name


# What a pass calls, and the pass that is left out; "" if nothing is measured, None if all is.
PARTS = [
    (clean, "_synchronise", "clean"),
    (clean.Stopwatch, "step", "clean"),
    (clean.Stopwatch, "results", "clean"),
    (clean, "others_processor_s", "clean"),
    (passes, "checksums", "ledger"),
    (passes, "tensors_alive", "ledger"),
    (FromSecondStep, "step", "ledger"),
    (LoopFindings, "sentences", "ledger"),
    (RunFolder, "write_ledger", "ledger"),
    (passes, "read", "ledger"),
    (trace, "profile", "trace"),
    (trace, "slim", "trace"),
    (trace, "operator_rows", "trace"),
    (loops, "describe_environment", ""),
    (RunFolder, "write_config", ""),
    (RunFolder, "write_record", ""),
    (own_loop, "write_run_reports", None),
]


@pytest.mark.parametrize(("owner", "name", "left_out"), PARTS, ids=[name for _, name, _ in PARTS])
def test_a_fault_in_a_pass_leaves_the_loop_and_the_other_passes_as_they_are(
    owner: Any, name: str, left_out: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise OSError(FAULT)

    losses, measured = train(), measuring(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(owner, name, fail)
        assert train(measured) == losses
    assert FAULT in reasons_of(measured)
    if left_out == "":
        with pytest.raises(DpprofError, match=f"nothing was measured: OSError: {FAULT}"):
            assert measured.result
    else:
        found = record_of(measured).passes
        assert {one for one in found if found[one].status is PassStatus.SKIPPED} == {left_out} - {None}


def test_errors_of_the_loop_are_its_own(tmp_path: Path) -> None:
    class Broken(nn.Module):
        def forward(self, values: Tensor) -> Tensor:
            if values[0] == 3:
                raise ValueError("mine")
            return values * 1.0

    caught = []
    with measuring(tmp_path) as measured:
        weight = nn.Parameter(torch.ones(2))
        optimizer, model = torch.optim.SGD([weight]), Broken()
        for number in range(2 * STEPS):
            try:
                optimizer.zero_grad()
                model(weight * 0 + number % 4).sum().backward()
                optimizer.step()
                torch.autograd.backward(torch.ones(1))  # has no graph
            except (ValueError, RuntimeError) as error:
                caught.append(type(error))
    assert caught == [RuntimeError, RuntimeError, RuntimeError, ValueError] * (STEPS // 2)
    assert not reasons_of(measured).replace("None", "").strip()


def test_the_directory_may_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    measured = measuring(Path("runs"))

    def moving() -> Iterator[None]:
        (tmp_path / "elsewhere").mkdir()
        with measured:
            os.chdir("elsewhere")
            yield

    train(contextmanager(moving)())
    assert {one.status for one in record_of(measured).passes.values()} == {PassStatus.FINISHED}
    (folder,) = (tmp_path / "runs").glob("*/*")
    assert RunFolder(folder).timeline_page.exists()
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.parametrize("before", [0, 4], ids=["in_the_warm_up", "in_the_ledger"])
def test_of_nested_contexts_the_innermost_measures(before: int, tmp_path: Path) -> None:
    def step() -> None:
        with dpprof.phase("forward"):
            weight.sum().backward()
        optimizer.step()

    weight = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight])
    with measuring(tmp_path) as outer:
        for _ in range(before):
            step()
        with measuring(tmp_path) as inner:
            for _ in range(STEPS):
                step()
        for _ in range(STEPS):
            step()
    assert {one.status for one in record_of(inner).passes.values()} == {PassStatus.FINISHED}
    assert "another dpprof.profile began inside it" in reasons_of(outer)


@pytest.mark.parametrize("begins", [2, 5, 9])
def test_a_profiler_of_the_loop_gets_all_that_it_asks_for(begins: int, tmp_path: Path) -> None:
    """There is one in a process, so the passes that need one do without."""
    weight = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight])
    mine = torch_profile(activities=[ProfilerActivity.CPU])
    with measuring(tmp_path) as measured:
        for number in range(2 * STEPS):
            if number == begins:
                mine.start()
            with record_function("mine"):
                weight.sum().backward()
            optimizer.step()
            if number == begins + 3:
                mine.stop()
    assert [event.name for event in mine.events() or ()].count("mine") == 4
    assert "the loop runs a profiler of torch's itself" in reasons_of(measured)
