import torch

from dpprof.measure.passes.clean import KeptLosses


def test_losses_that_are_not_finite_are_counted_once() -> None:
    kept = KeptLosses()
    kept.losses(torch.tensor([1.0, torch.nan, torch.inf]))
    kept.losses(torch.tensor([-torch.inf, 0.0, 3e38]))
    assert kept.count_nonfinite() == 3
    assert kept.count_nonfinite() == 0, "they are let go of"


def test_neither_the_graph_nor_a_larger_storage_is_kept() -> None:
    weight = torch.ones(4, 1000, requires_grad=True)
    kept = KeptLosses()
    kept.losses((2 * weight)[:, 0])
    kept.losses((2 * weight).sum(dim=1))
    for losses in kept._losses:
        assert not losses.requires_grad
        assert losses.untyped_storage().nbytes() == 4 * 4
