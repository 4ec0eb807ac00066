"""A loop that is measured from outside, beside dpprof's own trainers, and beside itself unmeasured."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from covering import sampled
from example_loops import NUMBERS, batches, loss_of, made_private, mlp
from example_runs import known, measured
from opacus.utils.batch_memory_manager import BatchMemoryManager
from tiny_ledgers import BUILT_IN
from torch import Tensor, nn
from torch.nn.modules import module as modules
from tutorial_loops import make_loop

import dpprof
from dpprof.config.flat import from_flat
from dpprof.errors import ConfigError, DpprofError
from dpprof.measure.workloads.workload import build_workload
from dpprof.record.record import PassStatus, Record

STEPS = 3 + 3 + 4 + 6  # warm-up, clean, ledger, trace


def watched(path: Path, step: Callable[[Tensor, Tensor], object]) -> Record:
    """The record of a loop of such steps."""
    with dpprof.profile(runs_dir=path, measured_steps=3) as prof:
        for x, y in batches(30):
            step(x, y)
            prof.step()
    return known(prof.result.record)


def train(model: nn.Module, number: int = 30, prof: Any = None) -> list[float]:
    """Train by a plain loop, and return the losses."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for x, y in batches(number):
        optimizer.zero_grad()
        loss = loss_of(model, x, y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if prof is not None:
            prof.step()
    return losses


def of_loop(path: Path, trainer: str) -> Record:
    """The record of the tutorial's loop for a trainer."""
    config = from_flat(SETTINGS | {"trainer": trainer}).resolve(cuda_available=False)
    workload = build_workload(config)
    loop = make_loop(config, workload)
    with dpprof.profile(runs_dir=path, measured_steps=3) as prof:

        @contextmanager
        def around_step() -> Iterator[None]:
            yield
            prof.step()

        loop(islice(workload.batches, STEPS), around_step)
    assert prof.is_complete
    return known(prof.result.record)


SETTINGS = {"model_size": "tiny", "batch_size": 8, "seq_len": 32, "device": "cpu", "measured_steps": 3}
SETTINGS |= {"passes": "clean,memory,ledger"}


@pytest.mark.parametrize(
    "trainer", sampled([(name,) for name in BUILT_IN], {("StandardTrainer",), ("DPGhostClippingTrainer",)})
)
def test_peaks_and_phases_are_those_of_the_own_trainer_to_the_byte(trainer: str, tmp_path: Path) -> None:
    loop = of_loop(tmp_path, trainer)
    config = from_flat(SETTINGS | {"trainer": trainer}).resolve(cuda_available=False)
    own = measured(tmp_path, config)
    assert known(loop.ledger).peak == known(own.ledger).peak
    assert loop.memory.peak_allocated == own.memory.peak_allocated
    assert loop.memory.phase_peak == own.memory.phase_peak
    assert loop.phase_s.keys() == own.phase_s.keys()
    noise, own_noise = (known(record.ledger).phase_peak.get("noise") for record in (loop, own))
    assert (noise and noise.by_category.get("noise")) == (own_noise and own_noise.by_category.get("noise"))
    categories, expected = ({**known(record.ledger).at_peak} for record in (loop, own))
    # What a loop's targets are, and which of its variables is the loss, is not known.
    for name in ("parameters", "gradients", "per_sample_gradients", "gram_matrices", "gradient_norms"):
        assert categories.get(name, 0) == expected.get(name, 0), name
    assert categories.get("inputs", 0) == expected["inputs"] // 2
    assert abs(categories.get("outputs", 0) - expected["outputs"]) <= 4 * 8


def test_the_loop_computes_what_it_computes_without_and_leaves_torch_as_it_was(tmp_path: Path) -> None:
    before = (torch.autograd.backward, torch.autograd.grad, torch.optim.Optimizer.zero_grad)
    bare, watched = mlp(), mlp()
    losses = train(bare)
    with dpprof.profile(watched, runs_dir=tmp_path, measured_steps=3) as prof:
        assert train(watched, prof=prof) == losses
        assert not modules._global_forward_hooks
        assert not modules._global_forward_pre_hooks
    for one, other in zip(bare.parameters(), watched.parameters(), strict=True):
        assert torch.equal(one, other)
    assert before == (torch.autograd.backward, torch.autograd.grad, torch.optim.Optimizer.zero_grad)


def test_figures_are_named_as_in_any_run(tmp_path: Path) -> None:
    with dpprof.profile(runs_dir=tmp_path, measured_steps=4) as prof:
        train(mlp(), prof=prof)
    figures = prof.figures
    assert {"latency/step_ms_median", "latency/backward_ms", "memory/peak_allocated_mib"} <= figures.keys()
    # Adam's two moments of each parameter, and a count of steps for each tensor.
    expected = (2 * 4 * NUMBERS + 4 * 4) / 2**20
    assert figures["memory/at_peak/optimizer_state_mib"] == pytest.approx(expected, rel=1e-6)
    record = known(prof.result.record)
    assert (len(record.step_s), record.samples_per_step, record.num_parameters) == (4, 8, NUMBERS)
    assert record.operators
    assert record.warnings == []


def test_phases_are_marked_by_hand(tmp_path: Path) -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x: Tensor, y: Tensor) -> None:
        gradients = torch.autograd.grad(loss_of(model, x, y), list(model.parameters()))
        with dpprof.phase("clip"):
            for parameter, gradient in zip(model.parameters(), gradients, strict=True):
                parameter.grad = gradient.clamp(-1, 1)
        optimizer.step()

    with dpprof.phase("nobody measures"):
        record = watched(tmp_path, step)
    assert list(record.phase_s) == ["forward", "backward", "clip", "optimizer_step"]


def test_a_forward_without_gradients_ends_with_the_model(tmp_path: Path) -> None:
    model = mlp()

    def step(x: Tensor, y: Tensor) -> None:
        with torch.no_grad():
            model(x)
        torch.randn(1000, 1000) @ torch.randn(1000, 1000)

    record = watched(tmp_path, step)
    assert sum(record.phase_s["forward"]) < sum(record.step_s) / 2


def test_a_closure_is_not_part_of_the_optimizers_step(tmp_path: Path) -> None:
    """LBFGS calls it twice in each step here, Lightning once."""
    model = mlp()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)
    with dpprof.profile(runs_dir=tmp_path, measured_steps=3, by_optimizer=True) as prof:
        for x, y in batches(30):

            def closure(x: Tensor = x, y: Tensor = y) -> Tensor:
                optimizer.zero_grad()
                loss = loss_of(model, x, y)
                loss.backward()
                return loss

            optimizer.step(closure)
    record = known(prof.result.record)
    assert set(record.phase_s) == {"zero_grad", "forward", "backward", "optimizer_step"}
    assert record.samples_per_step == 2 * 8
    assert sum(map(sum, record.phase_s.values())) <= sum(record.step_s)


def test_batches_made_ahead_are_counted_until_they_are_freed(tmp_path: Path) -> None:
    """The profiler reports no free of what it has not seen made."""
    model, ahead = mlp(), list(batches(30))
    with dpprof.profile(runs_dir=tmp_path, measured_steps=3) as prof:
        while ahead:
            x, y = ahead.pop(0)
            loss_of(model, x, y).backward()
            prof.step()
    record = known(prof.result.record)
    first, second, third = record.memory.step_peak
    one = 8 * 16 * 4 + 8 * 8
    assert (first - second, second - third) == (one, one)
    assert known(record.ledger).peak == first


def test_batches_that_change_their_size_are_counted(tmp_path: Path) -> None:
    model, sizes = mlp(), itertools.cycle([2, 3, 4])

    def step(x: Tensor, y: Tensor) -> None:
        size = next(sizes)
        loss_of(model, x[:size], y[:size]).backward()

    record = watched(tmp_path, step)
    assert (record.step_samples, record.samples_per_step) == ([2, 3, 4], 3)


def test_virtual_steps_of_opacus_are_one_step(tmp_path: Path) -> None:
    """`by_optimizer` sees only the steps that change weights: every second one, of two physical batches."""
    data = torch.randn(64, 16), torch.randint(0, 4, (64,))
    model, optimizer, loader = made_private(mlp(), data, 8)
    logical = {"data_loader": loader, "optimizer": optimizer, "max_physical_batch_size": 4}
    with dpprof.profile(runs_dir=tmp_path, measured_steps=3, by_optimizer=True) as prof:
        for _ in range(4):
            with BatchMemoryManager(**logical) as physical:
                for x, y in physical:
                    optimizer.zero_grad()
                    loss_of(model, x, y).backward()
                    optimizer.step()
    assert prof.is_complete
    record = known(prof.result.record)
    assert {"zero_grad", "forward", "backward", "clip", "noise", "optimizer_step"} == record.phase_s.keys()
    calls = [row.calls for row in known(record.ledger).traffic if row.name == "aten::_log_softmax"]
    assert sum(calls) == 2


def test_what_a_list_of_losses_keeps_alive_is_seen(tmp_path: Path) -> None:
    """Graphs of losses that nobody needs keep each step's activations."""
    model, kept = mlp(), []
    record = watched(tmp_path, lambda x, y: kept.append(model(x).pow(2).mean() + y.sum()))
    ledger = known(record.ledger)
    assert ledger.growth >= 8 * 32 * 4  # the hidden layer
    # The ledger and the allocator see the same steps.
    assert ledger.peak == pytest.approx(record.memory.peak_allocated, abs=64)
    growing, unused = record.warnings
    assert "each step leaves" in growing
    assert "at test_loop.py" in growing
    assert "a list of losses with their graphs?" in growing
    assert "backward never reaches the output" in unused


@pytest.mark.parametrize(("steps", "done", "left_out"), [(5, "clean", "ledger"), (11, "ledger", "trace")])
def test_a_loop_that_ends_early_says_what_it_lacks(
    steps: int, done: str, left_out: str, tmp_path: Path
) -> None:
    with dpprof.profile(runs_dir=tmp_path, measured_steps=3) as prof:
        train(mlp(), steps, prof)
    passes = known(prof.result.record).passes
    assert passes[done].status is PassStatus.FINISHED
    assert passes[left_out].status is PassStatus.SKIPPED
    assert "the loop ended" in known(passes[left_out].reason)
    assert not prof.is_complete


def test_a_model_in_bf16_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whether the loop runs under autocast is not."""
    model = mlp().bfloat16()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with dpprof.profile(model, runs_dir=tmp_path, measured_steps=3, end=True) as prof:
        for _ in range(30):
            model(torch.ones(8, 16, dtype=torch.bfloat16)).sum().backward()
            optimizer.step()
            prof.step()
    assert prof.result.config.precision == "fp32"
    assert known(prof.result.record).weights == {"bf16": 676}
    prof.show()
    assert "precision: weights in bf16\n" in capsys.readouterr().out
    assert ">weights in bf16</td>" in known(prof.folder).timeline_page.read_text()


def test_a_loop_that_ends_in_its_warm_up_has_no_figures(tmp_path: Path) -> None:
    with dpprof.profile(runs_dir=tmp_path) as prof:
        train(mlp(), 2, prof)
    with pytest.raises(DpprofError, match="call step"):
        _ = prof.figures
    assert list(tmp_path.iterdir()) == []


def test_an_error_of_the_loop_stays_its_own_and_is_kept(tmp_path: Path) -> None:
    prof = dpprof.profile(runs_dir=tmp_path, measured_steps=3)

    def fails() -> None:
        with prof:
            train(mlp(), 7, prof)
            raise ZeroDivisionError("of the loop")

    with pytest.raises(ZeroDivisionError):
        fails()
    assert "of the loop" in known(known(prof.result.record).passes["ledger"].reason)
    assert not modules._global_forward_hooks


def test_a_loop_without_end_can_be_ended(tmp_path: Path) -> None:
    with dpprof.profile(runs_dir=tmp_path, measured_steps=3, end=True) as prof:
        while True:
            train(mlp(), 30, prof)
    assert prof.is_complete


@pytest.mark.parametrize(
    ("settings", "says"), [({"name": "a b"}, "name"), ({"warmup_steps": 0}, "warmup_steps")]
)
def test_bad_settings_are_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        dpprof.profile(**settings)
