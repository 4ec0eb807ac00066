"""What a loop could do without: each fault is found by itself, with its bytes and its line."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from example_loops import NUMBERS, batches, loss_of, made_private, mlp
from example_runs import known
from torch import Tensor, nn
from torch.optim import Optimizer

import dpprof

Loop = Callable[[nn.Module, Optimizer, Tensor, Tensor], None]
kept: list[Any] = []


def found(
    step: Loop, path: Path, model: nn.Module | None = None, optimizer: Optimizer | None = None
) -> list[str]:
    """What is found of a loop of such steps."""
    model = model or mlp()
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)
    kept.clear()
    with dpprof.profile(model, runs_dir=path, warmup_steps=2, measured_steps=2) as prof:
        for x, y in batches(2 + 2 + 4):
            step(model, optimizer, x, y)
            prof.step()
    return known(prof.result.record).warnings


def line_of(step: Loop, text: str) -> str:
    """Where a step has a text: `test_findings.py:12`."""
    lines, first = inspect.getsourcelines(step)
    return f"{Path(__file__).name}:{first + next(i for i, line in enumerate(lines) if text in line)}"


def clean(model: nn.Module, optimizer: Optimizer, x: Tensor, y: Tensor) -> None:
    optimizer.zero_grad()
    loss_of(model, x, y).backward()
    optimizer.step()


def with_history(model: nn.Module, optimizer: Optimizer, x: Tensor, y: Tensor) -> None:
    clean(model, optimizer, x, y)
    kept.append([torch.randn_like(parameter) for parameter in model.parameters()])


def with_losses(model: nn.Module, optimizer: Optimizer, x: Tensor, y: Tensor) -> None:
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward(retain_graph=True)
    optimizer.step()
    kept.append(loss)


def with_numbers(model: nn.Module, optimizer: Optimizer, x: Tensor, y: Tensor) -> None:
    clean(model, optimizer, x, y)
    kept.append(x.sum())


def with_copy(model: nn.Module, optimizer: Optimizer, x: Tensor, y: Tensor) -> None:
    optimizer.zero_grad()
    loss_of(model, x, y).backward()
    kept[:] = [known(parameter.grad).clone() for parameter in model.parameters()]
    optimizer.step()


def with_zeros(model: nn.Module, optimizer: Optimizer, x: Tensor, y: Tensor) -> None:
    loss_of(model, x, y).backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)


def zeroing_late(model: nn.Module, optimizer: Optimizer, x: Tensor, y: Tensor) -> None:
    loss = loss_of(model, x, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def never_zeroing(model: nn.Module, optimizer: Optimizer, x: Tensor, y: Tensor) -> None:
    loss_of(model, x, y).backward()
    optimizer.step()


def evaluating(model: nn.Module, optimizer: Optimizer, x: Tensor, y: Tensor) -> None:
    clean(model, optimizer, x, y)
    model(x).argmax()


def keeping_outputs(model: nn.Module, optimizer: Optimizer, x: Tensor, y: Tensor) -> None:
    clean(model, optimizer, x, y)
    with torch.no_grad():
        kept[:] = [torch.cat([model(x)] * 8)]


def accumulating(model: nn.Module, optimizer: Optimizer, x: Tensor, y: Tensor) -> None:
    """One of two physical batches: the gradients of the first one stay for the second."""
    loss_of(model, x, y).backward()
    kept.append(None)
    if len(kept) % 2 == 0:
        optimizer.step()
        optimizer.zero_grad()


@pytest.mark.parametrize("step", [clean, with_numbers, accumulating])
def test_a_clean_loop_has_no_finding(step: Loop, tmp_path: Path) -> None:
    assert found(step, tmp_path) == []


@pytest.mark.parametrize(
    ("step", "line", "size", "says"),
    [
        (with_history, "randn_like", 4 * NUMBERS, "a history that nobody shortens?"),
        # The hidden layer, the logits' logarithms, the targets, the loss and the sum of its weights.
        (with_losses, "model(x)", 4 * 8 * (32 + 4) + 8 * 8 + 2 * 4, "a list of losses with their graphs?"),
        (with_copy, "clone()", 4 * NUMBERS, "the peak counts"),
        (keeping_outputs, "torch.cat", 4 * 8 * 8 * 4, "the peak counts"),
        (with_zeros, "set_to_none", 4 * NUMBERS, "call zero_grad(set_to_none=True)"),
        (zeroing_late, "zero_grad", 4 * NUMBERS, "call zero_grad() before the model"),
        (never_zeroing, "", 4 * NUMBERS, "call optimizer.zero_grad() in each step"),
        # The hidden layer and the outputs.
        (evaluating, "argmax", 4 * 8 * (32 + 4), "in 4 of 4 calls"),
    ],
)
def test_a_fault_is_named_with_its_bytes_and_its_line(
    step: Loop, line: str, size: int, says: str, tmp_path: Path
) -> None:
    (sentence,) = found(step, tmp_path)
    assert f"{size / 2**10:.1f} KiB" in sentence
    assert says in sentence
    assert not line or line_of(step, line) in sentence
    assert step is not with_history or f"randn_like at {line_of(step, line)}" in sentence


def test_gradients_of_weights_that_no_optimizer_has_are_named(tmp_path: Path) -> None:
    """An adapter that is made after the optimizer does not train."""
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.append(nn.Linear(4, 4))
    (sentence,) = found(clean, tmp_path, model, optimizer)
    assert "gradients (80 B) that no optimizer uses, of 3.weight, 3.bias" in sentence


def test_sparse_gradients_do_no_harm(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Embedding(50, 8, sparse=True), nn.Flatten(), nn.Linear(32, 4))

    def step(model: nn.Module, optimizer: Optimizer, x: Tensor, y: Tensor) -> None:
        clean(model, optimizer, x[:, :4].abs().long(), y)

    assert found(step, tmp_path, model) == []


def test_weights_that_stand_still_are_named_with_the_cause(tmp_path: Path) -> None:
    model = mlp()
    unused = nn.ModuleDict({"used": model, "unused": nn.Linear(2, 2)})
    unused.forward = model.forward
    (no_gradient,) = found(clean, tmp_path, unused)
    assert "no step has moved unused.weight, unused.bias: the loss gives no gradient" in no_gradient
    (no_rate,) = found(clean, tmp_path, model, torch.optim.SGD(model.parameters(), lr=0.0))
    assert "no step has moved 0.weight, 0.bias, 2.weight and 1 more: steps are too small" in no_rate


def found_of_private(path: Path, model: nn.Module, num_samples: int, **how: Any) -> list[str]:
    """What is found of two epochs of eight batches by Opacus."""
    torch.manual_seed(1)
    data = torch.randn(num_samples, 16), torch.randint(0, 4, (num_samples,))
    model, optimizer, loader = made_private(model, data, num_samples // 8, **how)
    with dpprof.profile(runs_dir=path, warmup_steps=2, measured_steps=2) as prof:
        for _ in range(2):
            for x, y in loader:
                clean(model, optimizer, x, y)
                prof.step()
    return known(prof.result.record).warnings


@pytest.mark.parametrize("poisson", [True, False])
def test_a_shuffled_loader_beside_an_accountant_is_named(poisson: bool, tmp_path: Path) -> None:
    warnings = found_of_private(tmp_path, mlp(), 64, shuffle=True, poisson_sampling=poisson)
    assert any("takes batches from a RandomSampler" in warning for warning in warnings) is not poisson


def test_a_batch_norm_in_a_private_loop_is_named(tmp_path: Path) -> None:
    """Whoever adds the noise."""
    model = mlp().insert(1, nn.BatchNorm1d(32))

    def step(model: nn.Module, optimizer: Optimizer, x: Tensor, y: Tensor) -> None:
        optimizer.zero_grad()
        loss_of(model, x, y).backward()
        with dpprof.phase("noise"):
            for parameter in model.parameters():
                known(parameter.grad).add_(torch.randn_like(parameter))
        optimizer.step()

    (sentence,) = found(step, tmp_path, model)
    assert sentence.startswith("1: nn.BatchNorm1d mixes the samples of a batch")
    assert found(clean, tmp_path, model) == []


def test_what_checks_know_of_a_model_of_opacus_is_said(tmp_path: Path) -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(16))

        def forward(self, x: Tensor) -> Tensor:
            return x * self.scale

    warnings = found_of_private(tmp_path, nn.Sequential(Scaled(), mlp()), 256, poisson_sampling=True)
    assert any("no grad sampler for Scaled" in warning for warning in warnings)
