"""What is changed for DP computes the same, and is said."""

from typing import Any

import pytest
import torch
from example_families import SMALL, small, unchanged
from torch import nn

from dpprof.errors import ConfigError
from dpprof.measure.workloads.huggingface.adapt import adapt

FAMILIES = [name for name in SMALL if name != "resnet-50"]


@pytest.mark.parametrize("family", ["gpt2", "bert-base", "qwen", "llama-1b"])
def test_the_same_function_is_computed(family: str) -> None:
    torch.manual_seed(0)
    model = unchanged(small(family)).eval()
    ids = torch.randint(100, (3, 16))
    before = model(ids).logits
    assert adapt(model, "DPGhostClippingTrainer", is_allowed=True)
    assert torch.allclose(model(ids).logits, before, atol=1e-6)


def test_gpt2_is_told_what_changed() -> None:
    model: Any = unchanged(small("gpt2"))
    assert adapt(model, "DPSGDTrainer", is_allowed=True) == (
        "8 x Conv1D, for which Opacus has no rule, is nn.Linear with the weight transposed.",
        "Ids of positions and token types are those of each sample: (B, T), contiguous.",
    )
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


def test_what_would_have_to_change_is_refused_if_that_is_not_allowed() -> None:
    with pytest.raises(ConfigError, match="adapt: got false, and the model needs changes: 8 x Conv1D"):
        adapt(unchanged(small("gpt2")), "DPSGDTrainer", is_allowed=False)
    assert adapt(unchanged(small("roberta-base")), "DPSGDTrainer", is_allowed=True)
