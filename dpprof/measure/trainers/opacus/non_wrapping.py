"""DP-SGD with Opacus's hooks on the model itself."""

from opacus.grad_sample import GradSampleHooks
from torch import nn

from dpprof.measure.trainers.opacus.dpsgd import DPSGDTrainer


class DPNonWrappingTrainer(DPSGDTrainer):
    """Flat clipping with `wrap_model=False`: the hooks are those of `GradSampleModule`, and the loop calls
    the model as it is."""

    def wrap_model(self) -> nn.Module:
        """The model, with hooks that compute per-sample gradients."""
        self.hooks = GradSampleHooks(self.model)
        return self.model
