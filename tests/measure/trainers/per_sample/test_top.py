"""Where the second backward begins, and that the gradient is right wherever that is."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from example_layers import CLASSES, MODELS, TOKENS, WIDTH, batch_of, gradients, loss, trainer_of
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from dpprof.errors import WorkloadError
from dpprof.measure.trainers.per_sample import mixed_ghost
from dpprof.measure.trainers.per_sample.mixed_ghost import DPMixedGhostTrainer, Start, differentiate
from dpprof.measure.trainers.per_sample.trainer import PerSampleTrainer
from dpprof.measure.trainers.per_sample.uses import PerSample, Products, Use
from dpprof.measure.trainers.reference import clipped_mean, naive_per_sample_gradients, relative_error
from dpprof.vocabulary.clipping import CLIPPINGS, PerSampleOptions

# The nodes of the graph where it may begin.
HEAD, LOSSES = "LinearFunctionBackward", "MeanBackward1"


class Body(nn.Module):
    """Gives the head's output, or more."""

    def __init__(self, shape: str) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(TOKENS, WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, ids: Tensor) -> Any:
        h = torch.tanh(self.embedding(ids))
        if self.shape == "hidden with a hook" and h.requires_grad:
            h.register_hook(lambda gradient: 2 * gradient)
        if self.shape == "scaled":
            return 0.5 * self.head(h)
        if self.shape == "also the body's output":
            return {"logits": self.head(h), "hidden": h}
        if self.shape == "head twice":
            return self.head(h), self.head(h * h)
        if self.shape == "in time order":
            return self.head(h).transpose(0, 1)
        out = self.head(h)
        if self.shape == "output with a hook" and out.requires_grad:
            out.register_hook(lambda gradient: 3 * gradient)
        return out


def of_first(outputs: Any, targets: Tensor) -> Tensor:
    return loss(outputs["logits"], targets)


def one_more_node(losses: Tensor) -> Tensor:
    """By which the losses themselves are known."""
    return losses.view(-1, 1).mean(1)


def of_both(outputs: Any, targets: Tensor) -> Tensor:
    if isinstance(outputs, dict):
        return one_more_node(loss(outputs["logits"], targets) + outputs["hidden"].square().mean((1, 2)))
    return one_more_node(loss(outputs[0], targets) + loss(outputs[1], targets))


def with_checkpoint(outputs: Tensor, targets: Tensor) -> Tensor:
    losses: Tensor = checkpoint(loss, outputs, targets, use_reentrant=True)
    return one_more_node(losses)


def with_one_more_node(outputs: Tensor, targets: Tensor) -> Tensor:
    return one_more_node(loss(outputs, targets))


def changing_in_place(outputs: Tensor, targets: Tensor) -> Tensor:
    return loss(outputs.mul_(2.0), targets)


def transposed(outputs: Tensor, targets: Tensor) -> Tensor:
    return loss(outputs.transpose(0, 1), targets)


class Case(NamedTuple):
    model: Callable[[], nn.Module]
    loss: Callable[[Any, Tensor], Tensor]
    begins: str
    named: str = "reused"


CASES = {
    "below the last layer": Case(lambda: Body(""), loss, "TanhBackward0"),
    "what is frozen below it does not count": Case(MODELS["frozen"], loss, "RMSNormFunctionBackward"),
    "of a dict, one output": Case(lambda: Body("also the body's output"), of_first, "TanhBackward0"),
    "outputs that depend on each other": Case(lambda: Body("also the body's output"), of_both, LOSSES),
    "a head called twice": Case(lambda: Body("head twice"), of_both, LOSSES),
    "a tied head": Case(MODELS["tied"], loss, HEAD, "tied"),
    "no layer at the end": Case(lambda: Body("scaled"), loss, "MulBackward0"),
    "an output in time order": Case(lambda: Body("in time order"), transposed, "TransposeBackward0"),
    "a checkpoint in the loss": Case(lambda: Body(""), with_checkpoint, LOSSES),
    "a loss that changes the output": Case(lambda: Body(""), changing_in_place, "TanhBackward0"),
    "a hook on the last layer's input": Case(lambda: Body("hidden with a hook"), loss, HEAD),
    "a hook on the output": Case(lambda: Body("output with a hook"), with_one_more_node, LOSSES),
    "images": Case(MODELS["convolutions"], loss, "MeanBackward1", "convolutions"),
}


Loss = Callable[[Any, Tensor], Tensor]
LIMIT = 0.05


def trainer_on(model: nn.Module, loss: Loss, num_samples: int, options: PerSampleOptions) -> PerSampleTrainer:
    how: dict[str, Any] = {"loss": loss, "batch_size": num_samples, "max_grad_norm": LIMIT}
    return trainer_of(DPMixedGhostTrainer, model, options, **how)


def error_of_step(
    trainer: PerSampleTrainer, model: nn.Module, loss: Loss, batch: tuple[Tensor, Tensor], clipping: str
) -> float:
    """The relative error of the gradient of the last step."""
    options = PerSampleOptions(clipping=clipping)
    per_sample = naive_per_sample_gradients(model, loss, batch, len(batch[1]))
    reference = clipped_mean(per_sample, LIMIT, lambda n, c: trainer.clip_factors(n, c, options))
    return relative_error(gradients(trainer), reference)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("clipping", CLIPPINGS)
def test_the_gradient_is_right_wherever_it_begins(
    case: Case, clipping: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    model, (inputs, targets) = case.model().double(), batch_of(case.named)
    batch = (inputs.double() if inputs.is_floating_point() else inputs, targets)
    trainer = trainer_on(model, case.loss, len(targets), PerSampleOptions("mixed", clipping))
    starts: list[Start] = []

    def noted(*args: Any) -> Start:
        starts.append(differentiate(*args))
        return starts[-1]

    monkeypatch.setattr(mixed_ghost, "differentiate", noted)
    trainer.profile_step(batch)
    assert [start.edge.node.name() for start in starts] == [case.begins]
    assert error_of_step(trainer, model, case.loss, batch, clipping) < 1e-10


@pytest.mark.parametrize(("outputs", "kept"), [(1, PerSample), (7, Products)])
def test_with_explicit_norms_the_last_layer_keeps_the_smaller_of_gradients_and_what_they_are_made_of(
    outputs: int, kept: type[Use], monkeypatch: pytest.MonkeyPatch
) -> None:
    """5 x 1 numbers a sample against 5 + 1, and 5 x 7 against 5 + 7."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, outputs)).double()
    batch = torch.randn(4, 3).double(), torch.zeros(4, dtype=torch.long)

    def squares(outputs: Tensor, targets: Tensor) -> Tensor:
        return outputs.square().sum(1)

    trainer = trainer_on(model, squares, 4, PerSampleOptions("explicit"))
    seen: list[type[Use]] = []

    def noted(*args: Any) -> Start:
        start = differentiate(*args)
        seen.extend(type(use) for use in trainer.book.entries[trainer.parameters[2]].uses)
        return start

    monkeypatch.setattr(mixed_ghost, "differentiate", noted)
    trainer.profile_step(batch)
    assert seen == [kept]
    assert error_of_step(trainer, model, squares, batch, "flat") < 1e-10


def test_a_parameter_that_only_the_loss_uses_is_refused() -> None:
    model = Body("")

    def penalised(outputs: Tensor, targets: Tensor) -> Tensor:
        return loss(outputs, targets) + model.head.weight.square().sum()

    how: dict[str, Any] = {"loss": penalised, "batch_size": 4, "options": PerSampleOptions()}
    trainer = DPMixedGhostTrainer(model, torch.optim.SGD, {"lr": 0.0}, "cpu", **how)
    with pytest.raises(WorkloadError, match=r"head.weight is used outside the forward"):
        trainer.profile_step(batch_of("reused"))
