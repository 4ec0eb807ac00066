"""DP-SGD with flat per-sample clipping."""

from opacus.grad_sample import GradSampleModule
from torch import Tensor, nn

from dpprof.trainers.private import PrivateTrainer


class DPSGDTrainer(PrivateTrainer):
    """Materialises every per-sample gradient, then clips each sample's whole gradient to one norm
    (Abadi et al. 2016; `GradSampleModule` and `DPOptimizer` of Opacus)."""

    def _wrap_model(self) -> nn.Module:
        wrapped: nn.Module = GradSampleModule(self.model)
        return wrapped

    def _accumulate_clipped(self, losses: Tensor) -> None:
        with self._phase("backward"):
            losses.mean().backward()
        with self._phase("clip"):
            self.optimizer.clip_and_accumulate()
