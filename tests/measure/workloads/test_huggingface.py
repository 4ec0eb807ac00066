"""Hugging Face families: what is changed for DP, training with every trainer, changes to a model's config."""

import copy
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from covering import product
from example_families import SMALL, changed, peak, small, unchanged
from example_runs import known
from torch import nn

from dpprof.errors import ConfigError, WorkloadError
from dpprof.measure.gradient_check import check_gradient
from dpprof.measure.observe import Observer
from dpprof.measure.trainers.nested import call
from dpprof.measure.trainers.training import Training
from dpprof.measure.workloads.huggingface.adapt import adapt
from dpprof.measure.workloads.workload import Workload, build_workload
from dpprof.vocabulary.trainers import DEFAULT_TRAINERS, TRAINERS


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("gpt2", "n_head=4"),
        ("bert-base", "num_labels=3"),
        ("qwen", "use_cache=false"),
        ("llama-1b", "use_cache=false"),
        ("opt-125m", "dropout=0.5"),
        ("opt-125m", "do_layer_norm_before=false,word_embed_proj_dim=32"),
    ],
)
def test_the_same_function_is_computed_and_saved(family: str, changes: str) -> None:
    model: Any = unchanged(changed(family, changes)).eval()
    plain = copy.deepcopy(model)
    ids = torch.randint(100, (3, 16))
    assert adapt(model, "ghost")
    assert torch.allclose(model(ids).logits, plain(ids).logits, atol=1e-6)
    assert adapt(model, "ghost") == ()
    saved, before = model.state_dict(), plain.state_dict()
    assert all(torch.equal(saved[name], before[name]) for name in before)
    assert saved.keys() == before.keys()
    model.load_state_dict({name: 2 * weight for name, weight in before.items()})
    plain.load_state_dict({name: 2 * weight for name, weight in before.items()})
    assert torch.allclose(model(ids).logits, plain(ids).logits, rtol=1e-4, atol=1e-4)


def test_frozen_weights_stay() -> None:
    model: Any = unchanged(small("gpt2")).requires_grad_(False)
    model.transformer.ln_f.requires_grad_(True)
    assert adapt(model, "ghost") == ()
    trained = [name for name, p in model.named_parameters() if p.requires_grad]
    assert trained == ["transformer.ln_f.weight", "transformer.ln_f.bias"]


def test_gpt2_is_told_what_changed() -> None:
    model: Any = unchanged(small("gpt2"))
    linear, ids = adapt(model, "DPSGDTrainer", is_allowed=True)
    assert linear.startswith("8 x Conv1D,")
    assert ids.startswith("Ids of positions and token types are those of each sample")
    assert not [m for m in model.modules() if type(m).__name__ == "Conv1D"]
    assert model.lm_head.weight is model.transformer.wte.weight


def test_ghost_alone_gets_an_untied_head() -> None:
    model: Any = unchanged(small("gpt2"))
    (*_, told) = adapt(model, "DPGhostClippingTrainer", is_allowed=True)
    assert "6,400 parameters more" in told
    assert model.lm_head.weight is not model.transformer.wte.weight
    assert torch.equal(model.lm_head.weight, model.transformer.wte.weight)


def test_batch_norm_is_exchanged_with_its_weights() -> None:
    model = unchanged(small("resnet-50"))
    count = sum(isinstance(m, nn.BatchNorm2d) for m in model.modules())
    norm, added = adapt(model, "StandardTrainer", is_allowed=True)
    assert norm.startswith(f"{count} x BatchNorm2d, which mixes samples, is nn.GroupNorm")
    assert added == "2 x ResNetBottleNeckLayer adds its residual out of place."
    assert sum(isinstance(m, nn.GroupNorm) for m in model.modules()) == count


PRIVATE = [name for name in DEFAULT_TRAINERS if TRAINERS[name].is_private]


def loss_of(workload: Workload) -> torch.Tensor:
    inputs, targets = next(iter(workload.batches))
    return workload.loss(call(workload.model, inputs), targets)


@pytest.mark.parametrize("family", SMALL)
def test_a_model_gives_one_loss_per_sample_and_the_same_one_again(family: str) -> None:
    first, second = (loss_of(build_workload(small(family))) for _ in range(2))
    assert first.shape == (3,)
    assert torch.equal(first, second)
    assert not torch.equal(first, loss_of(build_workload(small(family, seed=1))))


@pytest.mark.parametrize(("family", "trainer"), product(SMALL, PRIVATE))
def test_the_clipped_gradient_is_right(family: str, trainer: str) -> None:
    found = check_gradient(small(family, trainer=trainer))
    assert (found.fault, found.doubt) == (None, None)
    assert known(found.relative_error_float64) < 1e-9


@pytest.mark.parametrize(
    ("family", "trainer"), product(SMALL, ["StandardTrainer", "DPSGDTrainer", "DPBookKeepingTrainer"])
)
def test_the_estimated_peak_is_the_measured_one(family: str, trainer: str) -> None:
    config = small(family, trainer=trainer)
    assert peak(config, is_fake=True) == peak(config, is_fake=False)


def test_the_step_leaves_no_server_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr("socket.socket.connect", refuse)
    config = small("gpt2")
    Training(config).run(1, Observer())


def test_padding_is_as_said() -> None:
    workload = build_workload(small("bert-base", batch_size=64, seq_len=40))
    (ids, mask), labels = next(iter(workload.batches))
    lengths = mask.sum(1)
    assert 10 <= int(lengths.min()) < int(lengths.max()) <= 40
    assert torch.equal(mask, (torch.arange(40) < lengths.unsqueeze(1)).long())
    assert bool(((ids == 0) == (mask == 0)).all())
    assert set(labels.tolist()) == {0, 1}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"seq_len": 2000}, "seq_len: got '2000', allowed: at most 1024"),
        ({"model_config": "n_layers=2"}, "GPT2Config has no setting n_layers"),
        ({"model_config": "n_layer"}, "model_config: got 'n_layer', allowed: name=value"),
        ({"adapt": False, "trainer": "DPSGDTrainer"}, "adapt: got false, and the model needs changes: 8 x"),
        ({"attention": "dp_mha"}, "attention: got 'dp_mha', allowed: sdpa with"),
        ({"hidden_dim": 64}, "hidden_dim: got '64', allowed: 0 with huggingface:gpt2"),
    ],
)
def test_what_cannot_be_is_refused_by_name(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says.replace("(", r"\(")):
        build_workload(small("gpt2", **changes))


@pytest.mark.parametrize("family", ["gpt2", "llama-1b"])
def test_a_language_model_classifies_too(family: str) -> None:
    config = small(family, task="classification", trainer="DPSGDTrainer")
    assert loss_of(build_workload(config)).shape == (3,)
    Training(config).run(1, Observer())
    with pytest.raises(WorkloadError, match="cannot build resnet for task=causal-lm"):
        build_workload(small("resnet-50", task="causal-lm"))


def test_a_folder_gives_its_config_and_its_weights(tmp_path: Path) -> None:
    model: Any = unchanged(small("gpt2"))
    nn.init.constant_(model.transformer.ln_f.bias, 0.25)
    folder = tmp_path / "my model"
    model.save_pretrained(folder)
    assert (folder / "model.safetensors").exists()
    config = dataclasses.replace(small("gpt2", model_config=""), workload=f"huggingface:{folder}")
    assert config.resolve(cuda_available=False).model_title == "my-model"
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


BATCH, LENGTH, HEADS, LAYERS = 3, 64, 2, 2


MEASURED = ["StandardTrainer", "DPSGDTrainer", "DPBookKeepingTrainer"]


@pytest.mark.parametrize(
    ("key", "trainer"), product(["attn_implementation", "_attn_implementation"], MEASURED)
)
def test_eager_attention_holds_a_matrix_of_each_layer(key: str, trainer: str) -> None:
    """Backward keeps the softmax's output, T x T for each head, where fused attention keeps T sums."""
    settings: dict[str, Any] = {"trainer": trainer, "seq_len": LENGTH, "batch_size": BATCH}
    fused = changed("gpt2", "attn_pdrop=0.0", **settings)
    eager = changed("gpt2", f"attn_pdrop=0.0,{key}=eager", **settings)
    more = LAYERS * BATCH * HEADS * (LENGTH**2 - LENGTH) * 4
    assert peak(eager, is_fake=False) - peak(fused, is_fake=False) == more
    assert peak(eager, is_fake=True) == peak(eager, is_fake=False)


@pytest.mark.parametrize(
    ("family", "trainer"), product(["gpt2", "llama-1b", "bert-base", "opt-125m"], PRIVATE)
)
def test_the_clipped_gradient_of_eager_attention_is_right(family: str, trainer: str) -> None:
    found = check_gradient(changed(family, "attn_implementation=eager", trainer=trainer))
    assert known(found.relative_error_float64) < 1e-7  # transformers takes the softmax in float32


def test_every_implementation_computes_the_same() -> None:
    ids = torch.randint(100, (3, 16))
    found = []
    for changes in ("use_cache=false", "attn_implementation=sdpa", "attn_implementation=eager"):
        torch.manual_seed(0)
        found.append(unchanged(changed("gpt2", changes)).eval()(ids).logits)
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])
    assert torch.allclose(found[0], found[2], atol=1e-6)


def test_a_whole_number_is_taken_for_a_fraction() -> None:
    model: Any = build_workload(changed("gpt2", "resid_pdrop=0,embd_pdrop=0.5")).model
    assert (model.config.resid_pdrop, model.transformer.drop.p) == (0.0, 0.5)
    assert type(model.config.resid_pdrop) is float


@pytest.mark.parametrize(
    ("family", "changes", "says"),
    [
        ("gpt2", "attn_implementation=flash", "got 'attn_implementation=flash', allowed: .*eager.*sdpa"),
        ("gpt2", "_attn_implementation=flash", "got 'attn_implementation=flash', allowed: .*eager.*sdpa"),
        ("resnet-50", "attn_implementation=eager", "ResNetConfig has no setting attn_implementation"),
        ("gpt2", "n_layer=2.5", "got n_layer=2.5"),
    ],
)
def test_what_has_no_effect_is_refused(family: str, changes: str, says: str) -> None:
    with pytest.raises(ConfigError, match=f"model_config: {says}"):
        build_workload(changed(family, changes))
