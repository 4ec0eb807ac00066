"""The training script of a plan for a Hugging Face model, run as a user would: with pretrained weights."""

import copy
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from covering import product
from example_families import small, unchanged
from example_plans import STEPS, plan_of
from torch import Tensor, nn

from dpprof.config.entry_points import PlanConfig
from dpprof.measure.trainers.reference import clipped_mean, naive_per_sample_gradients
from dpprof.pages.snippet import snippet

SAMPLES, PHYSICAL, LENGTH, NORM = 6, 4, 16, 0.5
TRAINERS = {"flat": "DPSGDTrainer", "ghost": "DPGhostClippingTrainer", "bk": "DPBookKeepingTrainer"}


@pytest.fixture(scope="module")
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model saved as its users have it, with weights that no seed makes again."""
    torch.manual_seed(5)
    model: Any = unchanged(small(request.param, model_config=_without_dropout(request.param)))
    path = tmp_path_factory.mktemp(request.param)
    model.save_pretrained(path)
    return path


def _without_dropout(family: str) -> str:
    off = "dropout=0" if family == "opt-125m" else "resid_pdrop=0,embd_pdrop=0,attn_pdrop=0"
    return f"{small(family).options['model_config']},{off}"


def pretrained(folder: Path) -> Any:
    """What stands in a user's `make_model`."""
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder)


def loss(outputs: Any, labels: Tensor) -> Tensor:
    """One value per sample."""
    return F.cross_entropy(outputs.logits.mT, labels, reduction="none").mean(dim=1)


def script(folder: Path, trainer: str) -> ModuleType:
    """The script of a plan for the model in the folder, with weights in place of the stand-in's, one step on
    all samples, and no noise.
    """
    asked = PlanConfig(dataset_size=400, steps=STEPS, logical_batches="32")
    model = {"workload": f"huggingface:{folder}", "model_size": "auto", "seq_len": LENGTH}
    plan = plan_of((TRAINERS[trainer],), asked, **model)
    module = ModuleType("train")
    exec(snippet(plan, trainer, 32).text, vars(module))
    ids = torch.randint(2, 100, (SAMPLES, LENGTH + 1), generator=torch.Generator().manual_seed(3))
    vars(module).update(
        DATASET_SIZE=SAMPLES,
        LOGICAL_BATCH=SAMPLES,
        PHYSICAL_BATCH=PHYSICAL,
        SAMPLE_RATE=1.0,
        STEPS=1,
        NOISE_MULTIPLIER=0.0,
        MAX_GRAD_NORM=NORM,
        OPTIMIZER_SETTINGS={"lr": 1.0},
        make_model=lambda: (pretrained(folder), loss),
        make_dataset=lambda: [(row[:-1], row[1:]) for row in ids],
        epsilon_spent=lambda accountant: 0.0,
    )
    return module


@pytest.mark.parametrize(("folder", "trainer"), product(["gpt2", "opt-125m"], TRAINERS), indirect=["folder"])
def test_pretrained_weights_take_the_step_of_the_naive_loop(
    trainer: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clipped sums over all samples, and a checkpoint that transformers' own model loads."""
    train = script(folder, trainer)
    checkpoint = tmp_path / "checkpoint.pt"
    monkeypatch.setattr("sys.argv", ["train.py", "--steps", "1", "--checkpoint", str(checkpoint)])
    train.main()
    state = torch.load(checkpoint, weights_only=True)

    plain = pretrained(folder)
    plain.config.use_cache = False
    if trainer == "ghost":  # which gets an untied head
        plain.lm_head.weight = nn.Parameter(plain.lm_head.weight.detach().clone())
    trained = copy.deepcopy(plain)
    trained.load_state_dict(state["model"])
    batch = train.collate([train.make_dataset()[i] for i in range(SAMPLES)])
    per_sample = naive_per_sample_gradients(plain.train(), loss, batch, SAMPLES)
    expected = clipped_mean(per_sample, NORM)
    assert state["step"] == 1
    for before, after, gradient in zip(plain.parameters(), trained.parameters(), expected, strict=True):
        assert torch.allclose(before - gradient, after, atol=1e-5)
