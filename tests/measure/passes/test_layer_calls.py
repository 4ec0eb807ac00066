"""The layers that a step calls: shapes, and what of them trains."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from dpprof.measure.passes.layer_calls import LayerCalls
from dpprof.vocabulary.norm_forms import NormCost


def test_shapes_by_hand() -> None:
    model = nn.Sequential(nn.Conv2d(4, 6, 3, groups=2), nn.Flatten(), nn.Linear(6 * 4, 5, bias=False))
    model[0].weight.requires_grad_(False)
    with LayerCalls() as calls:
        calls.start_step(model)
        calls.in_forward = True
        model(torch.randn(3, 4, 4, 4))
        first, second = calls.rows({"2.weight": NormCost("gram", 1, 2, 3, True)})
    assert (first.name, first.samples, first.groups, first.positions) == ("0", 3, 2, 4)
    assert (first.rows, first.columns, first.norm) == (3, 2 * 9, None)
    assert (first.weight_trains, first.bias_trains, first.input_has_gradient) == (False, True, False)
    assert (second.name, second.groups, second.positions, second.rows, second.columns) == ("2", 1, 1, 5, 24)
    assert (second.bias_trains, second.input_has_gradient) == (False, True)
    assert (first.is_booked, second.is_booked) == (False, True)
    assert (second.norm, second.norm_flops, second.norm_bytes, second.sum_flops) == ("gram", 1, 2, 3)


def test_a_checkpoint_is_seen_in_backward() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    with LayerCalls() as calls:
        calls.start_step(model)
        calls.in_forward = True
        out = model[0](torch.randn(2, 3))
        out = checkpoint(model[1], out, use_reentrant=True)
        calls.in_forward = False
        out.sum().backward()
        first, second = calls.rows({})
    assert (first.is_recomputed, second.is_recomputed) == (False, True)
    assert second.input_has_gradient
