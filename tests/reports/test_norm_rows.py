"""Layers that are alike share a row."""

from dpprof.record.layers import LayerRow
from dpprof.reports.norm_rows import norm_rows


def layer(name: str, rows: int, norm: str | None) -> LayerRow:
    row = LayerRow(name, 2, 1, 64, rows, 32, norm=norm)
    row.norm_flops, row.norm_bytes, row.sum_flops = 3 * 10**9, 2**20, 10**9
    return row


def test_calls_of_one_shape_and_form_share_a_row() -> None:
    found = norm_rows([layer("a", 8, "gram"), layer("b", 16, "explicit"), layer("c", 8, "gram")])
    assert [row.layers for row in found] == ["a and 1 like it", "b"]
    assert (found[0].weight, found[0].form, found[0].positions) == ("8 x 32", "gram", 64)
    assert (found[0].norm_gflop, found[0].norm_mib, found[0].sum_gflop) == (3.0, 1.0, 1.0)


def test_a_trainer_that_does_not_choose_has_none() -> None:
    assert norm_rows([layer("a", 8, None)]) == []
