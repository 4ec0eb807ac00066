"""DP-SGD that computes the norms of per-sample gradients without the gradients."""

from dpprof.trainers.fast_gradient_clipping import DPFastGradientClippingTrainer


class DPGhostClippingTrainer(DPFastGradientClippingTrainer):
    """Ghost Clipping (Li et al. 2022, section 4): as Fast Gradient Clipping, but a linear layer's norms
    come from the Gram matrices of its activations and output gradients, two (B, T, T) tensors."""

    use_ghost_clipping = True
