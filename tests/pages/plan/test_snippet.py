"""The training script of a plan, run in this process: its gradient, empty batches, its numbers."""

import ast
import dataclasses
import math
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
import torch
from example_checked import CountsCalls
from example_mixing import Experts, Net, by_frequency, contrasted
from example_plans import BATCH, MODEL, PHYSICAL, SAMPLES, STEPS, of_every_trainer, plan_of
from example_unusual import LENGTH, WIDTH, RelativeEmbedding, Spectral
from example_workloads import per_sample_cross_entropy
from torch import nn

from dpprof.config.entry_points import PlanConfig
from dpprof.config.flat import from_flat
from dpprof.errors import ConfigError
from dpprof.measure.trainers.build import clip_rule
from dpprof.measure.trainers.reference import clipped_mean, naive_per_sample_gradients, relative_error
from dpprof.pages.snippet import snippet
from dpprof.privacy.guarantee import RDP, PrivateSteps
from dpprof.privacy.rdp import rdp_epsilon
from dpprof.vocabulary.trainer_info import TrainerInfo
from dpprof.vocabulary.trainers import TRAINERS

WRITTEN = [info.short_name for info in TRAINERS.values() if info.is_private]
# In float32; the norms of ghost are less exact.
TOLERANCE = 1e-3


def script(
    trainer: str, plan: dict[str, Any] | None = None, batch: int = BATCH, **changes: Any
) -> ModuleType:
    """The script as a module, with some of its constants changed."""
    module = ModuleType("train")
    text = snippet(plan or of_every_trainer(), trainer, batch).text
    assert max(map(len, text.splitlines())) <= 110
    exec(text, vars(module))
    vars(module).update(changes)
    return module


class Trained:
    """A script's training, one logical batch of given samples after the other."""

    def __init__(self, train: ModuleType, batches: list[list[int]]) -> None:
        self.model, loss = train.make_model()
        self.loss, self.dataset = loss, train.make_dataset()
        self.accountant = train.PRVAccountant()
        if hasattr(train, "split"):
            trainer = train.make_private(self.model.train(), loss)
            self.optimizer = trainer.optimizer
            self.steps: Iterator[None] = train.train(trainer, self.accountant, self.dataset, batches)
        else:
            private, self.optimizer = train.make_private(self.model.train(), self.accountant)
            self.steps = train.train(private, loss, self.optimizer, self.dataset, batches)

    def weights(self) -> list[torch.Tensor]:
        return [p.detach().clone() for p in self.model.parameters()]


@pytest.mark.parametrize("trainer", WRITTEN)
def test_a_logical_batch_in_pieces_has_the_gradient_of_the_naive_loop(trainer: str) -> None:
    """Clipped sums over the expected size, whatever the batch's own; and with none, noise alone."""
    samples = list(range(2 * PHYSICAL + 3))
    settings = {"lr": 1.0}
    train = script(trainer, NOISE_MULTIPLIER=0.0, MAX_GRAD_NORM=0.05, OPTIMIZER_SETTINGS=settings)
    training = Trained(train, [[], samples, []])
    before = training.weights()
    batch = train.collate([training.dataset[i] for i in samples])
    per_sample = naive_per_sample_gradients(train.make_model()[0], training.loss, batch, len(samples))
    rule = clip_rule(from_flat(of_every_trainer()["experiments"][_full(trainer)]))
    expected = [len(samples) / BATCH * g for g in clipped_mean(per_sample, 0.05, rule)]

    next(training.steps)
    assert all(torch.equal(a, b) for a, b in zip(before, training.weights(), strict=True))
    next(training.steps)
    moved = [a - b for a, b in zip(before, training.weights(), strict=True)]
    assert relative_error(moved, expected) < TOLERANCE
    after = training.weights()
    assert len(list(training.steps)) == 1
    assert all(torch.equal(a, b) for a, b in zip(after, training.weights(), strict=True))
    assert train.num_steps(training.accountant) == 3


@pytest.mark.parametrize("trainer", WRITTEN)
def test_an_empty_batch_gets_the_noise_of_any_other(trainer: str) -> None:
    train = script(trainer, NOISE_MULTIPLIER=2.0, OPTIMIZER_SETTINGS={"lr": 1.0})
    torch.manual_seed(1)
    training = Trained(train, [[]])
    before = training.weights()
    list(training.steps)
    noise = torch.cat([(a - b).flatten() for a, b in zip(before, training.weights(), strict=True)])
    assert float(noise.std()) == pytest.approx(2.0 * MODEL["max_grad_norm"] / BATCH, rel=0.02)  # type: ignore[operator]
    assert training.accountant.history == [(2.0, train.SAMPLE_RATE, 1)]


def test_all_steps_spend_the_epsilon_of_the_plan_by_the_accountant_of_the_plan() -> None:
    for row in of_every_trainer()["options"]:
        if row["trainer"] != "DPSGDTrainer":
            continue
        train = script("flat", batch=row["logical_batch"])
        accountant = train.PRVAccountant()
        accountant.history = [(train.NOISE_MULTIPLIER, train.SAMPLE_RATE, train.STEPS)]
        assert train.epsilon_spent(accountant) == pytest.approx(row["epsilon"], abs=1e-3)
    assert train.epsilon_spent(train.PRVAccountant()) == 0


def test_where_rdp_gave_the_guarantee_it_accounts() -> None:
    plan = of_every_trainer()
    for noise in plan["noises"]:
        noise["guarantee"]["accountant"] = RDP
    train = script("ghost", plan)
    accountant = train.RDPAccountant()
    accountant.history = [(train.NOISE_MULTIPLIER, train.SAMPLE_RATE, STEPS)]
    steps = PrivateSteps(train.SAMPLE_RATE, STEPS, train.DELTA)
    assert train.epsilon_spent(accountant) == pytest.approx(rdp_epsilon(train.NOISE_MULTIPLIER, steps))
    assert not hasattr(train, "EPSILON_ERROR")


def test_a_trainer_of_another_package_is_refused_with_the_reason(
    limited: TrainerInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = of_every_trainer()
    plan["options"][0]["trainer"] = limited.name

    def said() -> str:
        with pytest.raises(ConfigError) as refused:
            snippet(plan, limited.name, plan["options"][0]["logical_batch"])
        return str(refused.value)

    assert said().endswith("it takes no empty batch; use flat")
    monkeypatch.setitem(TRAINERS, limited.name, dataclasses.replace(limited, limits=()))
    assert said().endswith("it is of the package example_package")
    monkeypatch.delitem(TRAINERS, limited.name)
    assert "LimitedTrainer is not installed here" in said()


def test_the_numbers_are_those_of_the_row() -> None:
    plan = of_every_trainer()
    best = plan["recommended"]
    train = script("", plan, 0)
    assert train.DATASET_SIZE == SAMPLES
    assert math.floor(train.LOGICAL_BATCH / SAMPLES * 2**24) / 2**24 == train.SAMPLE_RATE
    for name in ("STEPS", "NOISE_MULTIPLIER", "LOGICAL_BATCH", "PHYSICAL_BATCH", "EPSILON", "DELTA"):
        assert getattr(train, name) == best[name.lower()]
    assert (train.MAX_GRAD_NORM, train.PRECISION) == (0.5, "fp32")
    assert (train.OPTIMIZER, train.OPTIMIZER_SETTINGS) == (torch.optim.SGD, {"lr": 0.01, "momentum": 0.0})
    assert script("flat", plan, 64).LOGICAL_BATCH == 64


def test_settings_of_the_plan_reach_the_script() -> None:
    asked = PlanConfig(dataset_size=SAMPLES, steps=STEPS, logical_batches=str(BATCH))
    plan = plan_of(
        ("bk",), asked, clipping="layer_wise", optimizer="adamw", precision="bf16", train="bias", loop="lean"
    )
    text = snippet(plan).text
    assert 'clipping="layer_wise"' in text
    assert 'loop="lean"' in text
    assert "This is another algorithm than DP-SGD with flat clipping" in text
    train = script("", plan, 0)
    assert train.OPTIMIZER is torch.optim.AdamW
    assert train.OPTIMIZER_SETTINGS == {"lr": 0.01}
    assert (train.PRECISION, train.MODEL["train"]) == ("bf16", "bias")
    training = Trained(train, [[0, 1, 2], []])
    assert len(list(training.steps)) == 2


def test_inputs_of_several_tensors_and_by_name_reach_the_model() -> None:
    train = script("flat")
    (first, second), targets = train.collate([((torch.ones(2), torch.zeros(3)), 1)] * 4)
    assert train.forward(lambda a, b: (a.shape, b.shape), (first, second)) == ((4, 2), (4, 3))
    inputs, targets = train.collate([({"a": torch.ones(2)}, 1)] * 4)
    assert train.forward(lambda a: a.shape, inputs) == (*targets.shape, 2)
    assert train.collate([]) is None


def test_an_input_that_is_the_same_for_every_sample_stops_the_script() -> None:
    train = script("flat")
    dataset = [(torch.randn(LENGTH, WIDTH), 0)]
    train.check_inputs(nn.Linear(WIDTH, 1), dataset)
    with pytest.raises(SystemExit, match=r"Embedding: an input of shape \(5, 5\) for 2 samples"):
        train.check_inputs(RelativeEmbedding(), dataset)
    with pytest.raises(SystemExit, match="complex"):
        train.make_private(Spectral(), None)


MEETING: list[tuple[Any, Any]] = [
    (lambda x: x - x.mean(dim=0), per_sample_cross_entropy),
    (lambda x: x / x.abs().max(), per_sample_cross_entropy),
    (lambda x: x, contrasted),
    (lambda x: x, by_frequency),
]


def few_samples() -> list[tuple[torch.Tensor, int]]:
    """As many of each class, one class after the other."""
    return [(torch.randn(20), 4 * index // SAMPLES) for index in range(SAMPLES)]


@pytest.mark.parametrize("trainer", ["flat", "bk"])
@pytest.mark.parametrize(("between", "loss"), MEETING)
def test_samples_that_meet_stop_the_script(trainer: str, between: Any, loss: Any) -> None:
    train = script(trainer)
    with pytest.raises(SystemExit, match="samples change the losses of others in their batch"):
        train.check_samples(Net(between), loss, few_samples())
    script(trainer, PHYSICAL_BATCH=1).check_samples(Net(between), loss, few_samples())  # each is alone


@pytest.mark.parametrize("middle", [nn.Identity(), nn.Dropout(0.5), Experts()])
def test_samples_that_do_not_meet_leave_the_script_alone(
    middle: nn.Module, capsys: pytest.CaptureFixture[str]
) -> None:
    train, model, samples = script("bk"), Net(middle=middle), few_samples()
    state = torch.get_rng_state()
    train.check_samples(model, per_sample_cross_entropy, samples)
    assert torch.equal(torch.get_rng_state(), state)
    assert capsys.readouterr().out == ""


def test_losses_of_which_nothing_can_be_told_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    train = script("flat")
    train.check_samples(Net(middle=CountsCalls()), per_sample_cross_entropy, few_samples())
    assert "whether samples change each other's is not known" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="losses are NaN or infinite"):
        train.check_samples(Net(lambda x: x * torch.nan), per_sample_cross_entropy, few_samples())


def test_hooks_of_parameters_stop_the_script() -> None:
    model = nn.Linear(WIDTH, 1)
    model.weight.register_hook(lambda gradient: 2 * gradient)
    with pytest.raises(SystemExit, match="parameters have hooks"):
        script("ghost").make_private(model, None)


def test_several_devices_are_not_pretended() -> None:
    plan = of_every_trainer()
    plan["asked"]["num_devices"] = 8
    found = snippet(plan)
    assert "The plan is for 8 devices, and THIS SCRIPT TRAINS ON ONE." in found.text
    assert any("the plan is for 8 devices, the script trains on one" in note for note in found.notes)
    ast.parse(found.text)


def test_weak_privacy_is_told_in_the_script_and_beside_it() -> None:
    own = {"target_delta": 0.01, "target_epsilon": 25.0, "allow_weak_privacy": True}
    asked = PlanConfig(dataset_size=SAMPLES, steps=STEPS, logical_batches=str(BATCH), **own)  # type: ignore[arg-type]
    found = snippet(plan_of(("bk",), asked))
    said = " ".join((ast.get_docstring(ast.parse(found.text)) or "").split())
    for start in ("delta 0.01 is above 1 / 400: publishing 4 of the samples", "epsilon 2"):
        assert f"WEAK PRIVACY: {start}" in said
        assert any(note.startswith(f"weak privacy: {start}") for note in found.notes)
    assert max(map(len, found.text.splitlines())) <= 110
    assert "WEAK PRIVACY" not in snippet(of_every_trainer()).text


def test_a_name_cannot_become_code() -> None:
    plan = of_every_trainer()
    plan["name"] = '"""\nimport os\n\\'
    body = ast.parse(snippet(plan).text).body
    assert [type(node) for node in body[:3]] == [ast.Expr, ast.Import, ast.Import]
    assert isinstance(body[1], ast.Import)
    assert body[1].names[0].name == "argparse"


def test_a_row_that_contradicts_its_plan_is_refused() -> None:
    for change, said in (
        ({"sample_rate": 0.5}, "sample_rate is not logical_batch over dataset_size"),
        ({"noise_multiplier": -1.0}, "noise_multiplier is -1.0, and must be above 0"),
        ({"noise_multiplier": "os.system"}, "noise_multiplier should be a valid number"),
        ({"steps": 0}, "steps: got '0'"),
        ({"physical_batch": 0}, "physical_batch is 0"),
    ):
        plan = of_every_trainer()
        plan["options"] = [row | change for row in plan["options"]]
        plan["recommended"] |= change
        with pytest.raises(ConfigError, match="plan: it is no plan that this dpprof can read") as caught:
            snippet(plan)
        assert said in str(caught.value)


def _full(trainer: str) -> str:
    return next(name for name, info in TRAINERS.items() if info.short_name == trainer)
