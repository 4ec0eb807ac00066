"""What the trial before the first step refuses: other numbers in backward, rows that mix samples."""

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from example_layers import OWN, WIDTH, Applied, Around, Scaled, batch_of, error_of, trainer_of
from torch import Tensor, nn

from dpprof.errors import WorkloadError
from dpprof.measure.trainers.per_sample.trainer import PerSampleTrainer
from dpprof.vocabulary.clipping import PerSampleOptions


class ByAttribute(Scaled):
    """Scales by an attribute, too."""

    factor: Any = 1

    def forward(self, x: Tensor) -> Any:
        return super().forward(x) * self.factor


def twice(layer: ByAttribute, x: Tensor) -> Any:
    """Calls the layer with another number in its attribute."""
    layer.factor = 1
    x = layer(x)
    layer.factor = 2
    return layer(x)


class Counting(Scaled):
    """Counts its calls, where no version tells."""

    calls = 0

    def forward(self, x: Tensor) -> Any:
        self.calls += 1
        return super().forward(x) * self.calls


class Masked(Scaled):
    """Takes as many rows of a mask as it needs."""

    mask: Tensor

    def forward(self, x: Tensor) -> Any:
        return super().forward(x) * self.mask[: len(x)]


def masked(layer: Masked, x: Tensor) -> Any:
    layer.mask = (x[..., :1] > 0).to(x.dtype).detach()
    return layer(x)


class Iterating(Scaled):
    """Takes a number from an iterator."""

    def forward(self, x: Tensor, factors: Iterator[float]) -> Any:  # type: ignore[override]
        return super().forward(x) * next(factors)


REFUSED: dict[str, Callable[[], nn.Module]] = {
    "attribute": lambda: Applied(ByAttribute(), twice),
    "counter": lambda: Counting(),
    "iterator": lambda: Applied(Iterating(), lambda layer, x: layer(x, iter([0.5, 2.0, 3.0, 4.0]))),
    "iterator's end": lambda: Applied(Iterating(), lambda layer, x: layer(x, iter([0.5]))),
    "mask": lambda: Applied(Masked(), masked),
    "random number": lambda: Scaled(after=lambda x: x * random.random()),
    "permuted": lambda: Scaled(after=lambda x: x.roll(1, 0)),
    "mean": lambda: Scaled(after=lambda x: x - x.mean(0)),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("cls", OWN)
def test_a_module_with_other_numbers_in_backward_is_refused(cls: type[PerSampleTrainer], name: str) -> None:
    model = Around(REFUSED[name]())
    with pytest.raises(WorkloadError, match=r"inner(\.layer)? gives other numbers"):
        trainer_of(cls, model, PerSampleOptions()).profile_step(batch_of("reused"))


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("cls", OWN)
def test_replayed_dropout_and_rounding_are_not(cls: type[PerSampleTrainer], precision: str) -> None:
    inner = nn.Sequential(
        Scaled(after=nn.Dropout(0.5)), nn.MultiheadAttention(WIDTH, 2, batch_first=True, dropout=0.5)
    )
    model = Around(Applied(inner, lambda both, x: both[1](*[both[0](x).mul_(2)] * 3)[0]))
    trainer_of(cls, model, PerSampleOptions(), precision=precision).profile_step(batch_of("reused"))


class Positions(nn.Module):
    """Adds what a function makes of the embeddings of positions, whose ids have one row."""

    def __init__(self, made_of: Callable[[Tensor], Tensor], *, is_frozen: bool = False) -> None:
        super().__init__()
        self.made_of, self.table = made_of, nn.Embedding(9, WIDTH)
        self.table.requires_grad_(not is_frozen)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x + self.made_of(self.table(torch.arange(x.shape[1]).unsqueeze(0))))


def first(rows: Tensor) -> Tensor:
    return rows[0]


@pytest.mark.parametrize("made_of", [lambda rows: rows, lambda rows: rows.squeeze(0), first])
@pytest.mark.parametrize("cls", OWN)
def test_a_row_for_each_sample_is_exact(
    cls: type[PerSampleTrainer], made_of: Callable[[Tensor], Tensor]
) -> None:
    """As is the first one of a table that does not train."""
    model = Around(Positions(made_of, is_frozen=made_of is first)).double()
    assert error_of(cls, model, batch_of("reused"), PerSampleOptions()) < 1e-10


@pytest.mark.parametrize("made_of", [first, lambda rows: rows.mean(0), lambda rows: rows.sum(0)])
@pytest.mark.parametrize("cls", OWN)
def test_rows_that_mix_are_refused(cls: type[PerSampleTrainer], made_of: Callable[[Tensor], Tensor]) -> None:
    batch = batch_of("reused")
    alike = (batch[0][:1].expand_as(batch[0]), batch[1][:1].expand_as(batch[1]))
    for each in (batch, alike):
        trainer = trainer_of(cls, Around(Positions(made_of)), PerSampleOptions())
        with pytest.raises(WorkloadError, match=r"inner\.table is called with ids of one row"):
            trainer.profile_step(each)
