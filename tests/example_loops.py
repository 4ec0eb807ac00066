"""What loops train that are measured from outside: a small model, its batches and its loss, also private."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from opacus import PrivacyEngine
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

NUMBERS = 16 * 32 + 32 + 32 * 4 + 4  # of the model


def mlp() -> nn.Sequential:
    """The same one every time."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))


def batches(number: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Of eight samples; each is made when it is asked for."""
    torch.manual_seed(1)
    for _ in range(number):
        yield torch.randn(8, 16), torch.randint(0, 4, (8,))


def loss_of(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """The mean of a batch."""
    return nn.functional.cross_entropy(model(x), y)


def made_private(
    model: nn.Module,
    data: Sequence[Tensor],
    batch_size: int,
    *,
    lr: float = 0.1,
    noise_multiplier: float = 1.0,
    shuffle: bool = False,
    poisson_sampling: bool = False,
) -> tuple[Any, Any, Any]:
    """The model, its optimizer and the loader of its data as Opacus makes them."""
    private: tuple[Any, Any, Any] = PrivacyEngine(accountant="rdp").make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=lr),
        data_loader=DataLoader(TensorDataset(*data), batch_size=batch_size, shuffle=shuffle),
        noise_multiplier=noise_multiplier,
        max_grad_norm=1.0,
        poisson_sampling=poisson_sampling,
    )
    return private
