"""Every family trains with every trainer, right and with the peak that is estimated."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from example_families import SMALL, small, unchanged
from torch import nn

from dpprof.errors import ConfigError, WorkloadError
from dpprof.measure.experiment import ExperimentTraining
from dpprof.measure.gradient_check import check
from dpprof.measure.observe import Observer
from dpprof.measure.passes.ledger import Ledger, keep_ledger
from dpprof.measure.trainers.build import load_trainer
from dpprof.measure.trainers.fake_tensors import fake_tensors
from dpprof.measure.trainers.nested import call
from dpprof.measure.workloads.workload import Workload, build_workload
from dpprof.vocabulary.trainers import DEFAULT_TRAINERS, TRAINERS


def loss_of(workload: Workload) -> torch.Tensor:
    inputs, targets = next(iter(workload.batches))
    return workload.loss(call(workload.model, inputs), targets)


@pytest.mark.parametrize("family", SMALL)
def test_a_model_gives_one_loss_per_sample_and_the_same_one_again(family: str) -> None:
    first, second = (loss_of(build_workload(small(family))) for _ in range(2))
    assert first.shape == (3,)
    assert torch.equal(first, second)
    assert not torch.equal(first, loss_of(build_workload(small(family, seed=1))))


@pytest.mark.parametrize("family", SMALL)
@pytest.mark.parametrize("trainer", [name for name in DEFAULT_TRAINERS if TRAINERS[name].is_private])
def test_the_clipped_gradient_is_right(family: str, trainer: str) -> None:
    found = check(small(family, trainer=trainer))
    assert found.fault is None
    assert found.doubt is None
    assert found.relative_error_float64 is not None
    assert found.relative_error_float64 < 1e-9


def peak(config: Any, *, is_fake: bool) -> int:
    def kept() -> int:
        training = lambda: ExperimentTraining(config, build_workload(config))  # noqa: E731
        return keep_ledger(training, Ledger("cpu"), 1).result().peak

    if not is_fake:
        return kept()
    with fake_tensors(load_trainer(config.trainer)):
        return kept()


@pytest.mark.parametrize("family", ["gpt2", "bert-base"])
def test_shared_ids_are_right_where_samples_are_computed_one_by_one(family: str) -> None:
    """Opacus's functorch calls a copy of each module with one sample."""
    error = check(small(family, trainer="functorch")).relative_error_float64
    assert error is not None
    assert error < 1e-9


@pytest.mark.parametrize("trainer", ["StandardTrainer", "DPSGDTrainer", "DPBookKeepingTrainer"])
@pytest.mark.parametrize("family", SMALL)
def test_the_estimated_peak_is_the_measured_one(family: str, trainer: str) -> None:
    config = small(family, trainer=trainer)
    assert peak(config, is_fake=True) == peak(config, is_fake=False)


def test_the_step_leaves_no_server_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr("socket.socket.connect", refuse)
    config = small("gpt2")
    ExperimentTraining(config, build_workload(config)).run(1, Observer())


def test_padding_is_as_said() -> None:
    workload = build_workload(small("bert-base", batch_size=64, seq_len=40))
    (ids, mask), labels = next(iter(workload.batches))
    lengths = mask.sum(1)
    assert 10 <= int(lengths.min()) < int(lengths.max()) <= 40
    assert torch.equal(mask, (torch.arange(40) < lengths.unsqueeze(1)).long())
    assert bool((ids[mask == 0] == 0).all())
    assert set(labels.tolist()) == {0, 1}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"seq_len": 2000}, "seq_len: got '2000', allowed: at most 1024, the positions of gpt2"),
        ({"model_config": "n_layers=2"}, "GPT2Config has no setting n_layers"),
        ({"model_config": "n_layer"}, "model_config: got 'n_layer', allowed: name=value"),
        (
            {"adapt": False, "trainer": "DPSGDTrainer"},
            "adapt: got false, and the model needs changes: 8 x Conv1D",
        ),
        ({"attention": "dp_mha"}, "attention: got 'dp_mha', allowed: sdpa with huggingface:gpt2"),
        (
            {"hidden_dim": 64},
            "hidden_dim: got '64', allowed: 0 with huggingface:gpt2, whose model is what it",
        ),
    ],
)
def test_what_cannot_be_is_refused_by_name(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says.replace("(", r"\(")):
        build_workload(small("gpt2", **changes))


@pytest.mark.parametrize("family", ["gpt2", "llama-1b"])
def test_a_language_model_classifies_too(family: str) -> None:
    config = small(family, task="classification", trainer="DPSGDTrainer")
    assert loss_of(build_workload(config)).shape == (3,)
    ExperimentTraining(config, build_workload(config)).run(1, Observer())


def test_a_task_that_a_family_does_not_have_is_refused() -> None:
    with pytest.raises(WorkloadError, match="cannot build resnet for task=causal-lm"):
        build_workload(small("resnet-50", task="causal-lm"))


def test_a_folder_gives_its_config_and_its_weights(tmp_path: Path) -> None:
    model: Any = unchanged(small("gpt2"))
    nn.init.constant_(model.transformer.ln_f.bias, 0.25)
    folder = tmp_path / "my model"
    model.save_pretrained(folder)
    assert (folder / "model.safetensors").exists()
    config = dataclasses.replace(small("gpt2", model_config=""), workload=f"huggingface:{folder}")
    assert config.resolve(cuda_available=False).model_name == "my-model"
    only_config = dataclasses.replace(config, workload=f"huggingface:{folder}/config.json")
    loaded: Any = build_workload(config).model
    fresh: Any = build_workload(only_config).model
    assert set(loaded.transformer.ln_f.bias.tolist()) == {0.25}
    assert set(fresh.transformer.ln_f.bias.tolist()) == {0.0}


def test_a_config_file_says_what_it_trains_for(tmp_path: Path) -> None:
    values = {"model_type": "bert", "architectures": ["BertForSequenceClassification"], "num_labels": 4}
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    (tmp_path / "config.json").write_text(json.dumps(values | sizes | {"vocab_size": 50}))
    config = dataclasses.replace(
        small("bert-base", model_config="num_labels=5"), workload=f"huggingface:{tmp_path}"
    )
    model: Any = build_workload(config).model
    assert type(model).__name__ == "BertForSequenceClassification"
    assert model.config.num_labels == 5
