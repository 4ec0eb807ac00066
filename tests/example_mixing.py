"""Workloads whose samples meet in the model or in the loss, and some that only look so."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from example_checked import CountsCalls, Function, refuse_float64
from example_trapped import Factory
from example_workloads import mlp, per_sample_cross_entropy
from torch import Tensor, nn

from dpprof.config.experiment import ExperimentConfig

WIDTH, EXPERTS = 32, 4


class Net(nn.Module):
    """The MLP, with code of its own between its layers."""

    def __init__(self, between: Callable[[Tensor], Tensor] = lambda x: x, middle: Any = None) -> None:
        super().__init__()
        self.first, self.middle, self.last = (
            nn.Linear(20, WIDTH),
            middle or nn.Identity(),
            nn.Linear(WIDTH, 5),
        )
        self.between = between

    def forward(self, x: Tensor) -> Any:
        return self.last(self.middle(self.between(self.first(x))).relu())


class Experts(nn.Module):
    """Each sample goes to one of several layers, which takes no more than `capacity` samples, if given."""

    def __init__(self, *, capacity: int | None = None, dropout: float = 0.0) -> None:
        super().__init__()
        self.gate = nn.Linear(WIDTH, EXPERTS)
        self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(EXPERTS))
        self.capacity, self.dropout = capacity, dropout

    def forward(self, x: Tensor) -> Tensor:
        weights, chosen = self.gate(x).softmax(-1).max(-1)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows = (chosen == number).nonzero().flatten()[: self.capacity]
            given = F.dropout(expert(x[rows]), self.dropout)
            out = out.index_add(0, rows, given * weights[rows, None])
        return out


class Gated(nn.Module):
    """Adds the batch's mean, times a weight that begins at zero."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.gate * x.mean(dim=0)


class Normalised(nn.Module):
    """By the batch, without `nn.BatchNorm1d`."""

    def forward(self, x: Tensor) -> Tensor:
        return F.batch_norm(x, None, None, training=True)


def of(make: Callable[[], nn.Module]) -> Factory:
    """The MLP's batches and loss with another model."""
    return lambda config: (make(), *mlp(config)[1:])


def losing(loss: Callable[[Tensor, Tensor], Tensor], classes: int = 5) -> Factory:
    """The MLP with another loss, and so many classes."""

    def workload(config: ExperimentConfig) -> tuple[Any, ...]:
        size = config.batch_size
        batches = iter(lambda: (torch.randn(size, 20), torch.randint(classes, (size,))), None)
        return mlp(config)[0], batches, loss

    return workload


def over_largest(outputs: Tensor, targets: Tensor) -> Tensor:
    losses = per_sample_cross_entropy(outputs, targets)
    return losses / losses.detach().max()


def contrasted(outputs: Tensor, targets: Tensor) -> Tensor:
    return per_sample_cross_entropy(outputs, targets) + 0.1 * (outputs @ outputs.T).logsumexp(dim=1)


def balanced(outputs: Tensor, targets: Tensor) -> Tensor:
    """An auxiliary loss over the batch, as mixtures of experts have."""
    use = outputs.softmax(dim=1).mean(dim=0)
    return per_sample_cross_entropy(outputs, targets) + 1e-3 * (use * use).sum()


def by_frequency(outputs: Tensor, targets: Tensor) -> Tensor:
    return per_sample_cross_entropy(outputs, targets) / (targets[:, None] == targets).sum(dim=1)


centred = of(lambda: Net(lambda x: x - x.mean(dim=0)))
less_the_first = of(lambda: Net(lambda x: x - x[:1]))
of_neighbours = of(lambda: Net(lambda x: x + 0.1 * x.roll(1, dims=0)))
over_maximum = of(lambda: Net(lambda x: x / x.abs().max()))
normalised = of(lambda: Net(middle=Normalised()))
with_gate = of(lambda: Net(middle=Gated()))
of_capacity = of(lambda: Net(middle=Experts(capacity=1)))
centred_in_float32 = of(lambda: Net(lambda x: refuse_float64(x) - x.mean(dim=0)))
batch_norm_and_centred = of(lambda: Net(lambda x: x - x.mean(dim=0), nn.BatchNorm1d(WIDTH)))
loss_over_largest, loss_contrasted, loss_balanced = map(losing, (over_largest, contrasted, balanced))
loss_by_frequency = losing(by_frequency, classes=2)

experts = of(lambda: Net(middle=Experts()))
batch_norm = of(lambda: Net(middle=nn.BatchNorm1d(WIDTH)))
batch_norm_frozen = of(lambda: Net(middle=nn.BatchNorm1d(WIDTH, affine=False)))
dropout = of(lambda: Net(middle=nn.Dropout(0.5)))
dropout_by_function = of(lambda: Net(F.dropout))
partly_float32 = of(lambda: Net(Tensor.float, Experts()))

experts_with_dropout = of(lambda: Net(middle=Experts(dropout=0.5)))
with_state = of(lambda: Net(middle=CountsCalls()))


def own_draws(config: ExperimentConfig) -> tuple[Any, ...]:
    """Draws by a generator of its own."""
    generator = torch.Generator().manual_seed(0)
    noise = Function(lambda x: x * torch.rand(x.shape, generator=generator, dtype=x.dtype))
    return Net(middle=noise), *mlp(config)[1:]


def alike(config: ExperimentConfig) -> tuple[Any, ...]:
    """One sample, again and again."""
    model, batches, loss = mlp(config)
    inputs, targets = next(batches)
    same = [0] * config.batch_size
    return model, iter(lambda: (inputs[same], targets[same]), None), loss
