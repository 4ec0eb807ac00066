"""DP-SGD whose per-sample gradients come from `torch.func` in every module."""

from opacus.grad_sample import GradSampleModule
from torch import nn

from dpprof.measure.trainers.opacus.dpsgd import DPSGDTrainer


class DPFunctorchTrainer(DPSGDTrainer):
    """Flat clipping with `grad_sample_mode="functorch"`: backward runs each module's forward and backward
    again under `vmap`, for one sample at a time as it seems to the module, instead of a rule of Opacus's for
    its kind."""

    is_functorch_forced = True

    def wrap_model(self) -> nn.Module:
        """With hooks that use `torch.func` alone."""
        wrapped: nn.Module = GradSampleModule(self.model, force_functorch=self.is_functorch_forced)
        return wrapped
