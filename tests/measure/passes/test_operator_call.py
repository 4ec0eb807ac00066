"""Tests of the sizes and kinds by which operators' times are looked up."""

import torch
from torch import Tensor

from dpprof.measure.passes.operator_call import call_of, sizes_of
from dpprof.vocabulary.operator_kinds import STAND_IN, kind_of


def test_sizes_are_those_of_the_products_that_an_operator_does() -> None:
    x, w = torch.ones(2, 8, 10, 10), torch.ones(16, 8, 3, 3)
    out = torch.nn.functional.conv2d(x, w)
    flops = 2 * out.numel() * 8 * 9
    forward = call_of("aten::convolution", (x, w), 0, flops)
    masks = [True, True, True], [True, False, False], [False, True, False]
    backward, of_x, of_w = (
        call_of("aten::convolution_backward", (out, x, w, mask), 0, 2 * flops) for mask in masks
    )
    kinds = [kind_of(each.name).removeprefix("convolution_") for each in (backward, of_x, of_w)]
    assert kinds == ["backward", "of_inputs", "of_weights"]
    assert sizes_of(of_w, kind_of(of_w.name)) == [9, 2 * 8 * 8, 16, 8]
    for each in (forward, backward):
        assert sizes_of(each, "convolution") == [9, 2 * 8 * 8, 16, 8]
        assert sizes_of(each, "product") == [1, 2 * 8 * 8, 16, 72]
    batched = call_of("aten::bmm", (torch.ones(3, 4, 5), torch.ones(3, 5, 6)), 0, 0)
    assert sizes_of(batched, "product") == [3, 4, 6, 5]
    rows = call_of("aten::_softmax", (torch.ones(3, 4, 5),), 0, 0)
    assert sizes_of(rows, "softmax") == [12, 5]


def test_kinds_go_by_name_and_order_and_every_stand_in_ends() -> None:
    transposed: Tensor = torch.ones(2, 3).T
    copied = call_of("aten::clone", (transposed,), 0, 0)
    assert kind_of(copied.name, copied.is_dense) == "transpose"
    names = ("add", "add_", "_log_softmax", "_foreach_mul_", "relu", "new_zeros", "zero_", "copy_")
    kinds = "elementwise in_place log_softmax foreach elementwise zeros in_place in_place"
    assert [kind_of(f"aten::{name}") for name in names] == kinds.split()
    assert kind_of("aten::im2col") == kind_of("aten::col2im") == "unfold"
    for kind in STAND_IN:
        seen = [kind]
        while seen[-1] in STAND_IN:
            seen.append(STAND_IN[seen[-1]])
            assert len(seen) == len(set(seen)), seen
