"""Workloads whose gradients are easily lost or made of the wrong rows: of LENGTH vectors of WIDTH each."""

from collections.abc import Callable
from typing import Any

import torch
from example_workloads import per_sample_cross_entropy
from torch import Tensor, nn
from torch.nn.utils import prune, weight_norm

from dpprof.config.experiment import ExperimentConfig

LENGTH, WIDTH, CLASSES, TOKENS = 5, 16, 3, 7


class Spectral(nn.Module):
    """Multiplies frequencies by complex weights, as a Fourier neural operator does."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(LENGTH // 2 + 1, WIDTH, dtype=torch.complex64))

    def forward(self, x_BTD: Tensor) -> Any:
        return torch.fft.irfft(torch.fft.rfft(x_BTD, dim=1) * self.weight, n=LENGTH, dim=1)


class ComplexLinear(nn.Module):
    """A linear layer of complex numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(WIDTH, WIDTH, dtype=torch.complex64)

    def forward(self, x_BTD: Tensor) -> Any:
        return self.inner(torch.complex(x_BTD, x_BTD.flip(-1))).abs()


class Transposed(nn.Module):
    """A transposed convolution whose weight a hook computes from two others (`weight_norm`)."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = weight_norm(nn.ConvTranspose1d(WIDTH, WIDTH, 2))

    def forward(self, x_BTD: Tensor) -> Any:
        return self.inner(x_BTD.mT).mT


class PrunedBilinear(nn.Module):
    """A bilinear layer half of whose weights are masked by a hook."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = prune.random_unstructured(nn.Bilinear(WIDTH, WIDTH, WIDTH), "weight", 0.5)

    def forward(self, x_BTD: Tensor) -> Any:
        return self.inner(x_BTD, x_BTD.flip(-1))


class Relative(nn.Module):
    """Adds a bias for each pair of positions, which it computes from a table of shape (T, T)."""

    class Bias(nn.Module):
        """A weight for each distance, without a rule; the table is the same for all samples."""

        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(2 * LENGTH, WIDTH))

        def forward(self, x_BTD: Tensor, distances_TT: Tensor) -> Any:
            bias_TTD = self.weight[distances_TT]
            return x_BTD + torch.einsum("tsd,bsd->btd", bias_TTD, x_BTD)

    def __init__(self) -> None:
        super().__init__()
        self.bias: nn.Module = Relative.Bias()
        positions = torch.arange(LENGTH)
        self.register_buffer("distances", positions[:, None] - positions + LENGTH)

    def forward(self, x_BTD: Tensor) -> Any:
        return self.bias(x_BTD, self.distances)


class RelativeEmbedding(Relative):
    """The same, its weights those of an embedding, whose gradient would be that of T samples (as T5's)."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Embedding(2 * LENGTH, WIDTH)

    def forward(self, x_BTD: Tensor) -> Any:
        return x_BTD + torch.einsum("tsd,bsd->btd", self.bias(self.distances), x_BTD)


class Tied(nn.Module):
    """A head that multiplies by the embedding's weight, without calling the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, WIDTH)
        self.middle = nn.Linear(WIDTH, WIDTH)

    def forward(self, ids_BT: Tensor) -> Any:
        return self.middle(self.embedding(ids_BT)) @ self.head().T

    def head(self) -> Tensor:
        """The weight of the head."""
        return self.embedding.weight


def _of(make: Callable[[], nn.Module]) -> Callable[[ExperimentConfig], tuple[Any, ...]]:
    def workload(config: ExperimentConfig) -> tuple[Any, ...]:
        """The layer between two linear ones; a class for each sample."""
        model = nn.Sequential(nn.Linear(WIDTH, WIDTH), make(), nn.Linear(WIDTH, CLASSES))
        shape = (config.batch_size, LENGTH, WIDTH)
        batches = iter(lambda: (torch.randn(shape), torch.randint(CLASSES, shape[:1])), None)
        return model, batches, lambda outputs, targets: per_sample_cross_entropy(outputs.mean(1), targets)

    return workload


spectral, complex_linear = _of(Spectral), _of(ComplexLinear)
transposed, pruned_bilinear = _of(Transposed), _of(PrunedBilinear)
relative, relative_embedding = _of(Relative), _of(RelativeEmbedding)


def tied(config: ExperimentConfig) -> tuple[Any, ...]:
    """A language model of a few tokens."""
    batches = iter(lambda: tuple(torch.randint(TOKENS, (2, config.batch_size, LENGTH))), None)
    return Tied(), batches, lambda logits, targets: per_sample_cross_entropy(logits.mT, targets).mean(1)
