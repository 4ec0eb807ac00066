"""DP-SGD whose per-sample gradients come from torch's expanded weights."""

from collections.abc import Iterator
from contextlib import contextmanager

from opacus.grad_sample import GradSampleModuleExpandedWeights
from torch import Tensor, nn
from torch.nn.utils._expanded_weights import expanded_weights_utils

from dpprof.measure.observe import Observer
from dpprof.measure.trainers.opacus.dpsgd import DPSGDTrainer
from dpprof.measure.trainers.opacus.labels import replaced


class DPExpandedWeightsTrainer(DPSGDTrainer):
    """Flat clipping with `grad_sample_mode="ew"`: forward runs on `ExpandedWeight`s, a tensor subclass of
    torch's whose linear layers, convolutions, embeddings and norms have backward rules that give per-sample
    gradients, and no other gradient of a weight."""

    def wrap_model(self) -> nn.Module:
        """With expanded weights in place of its parameters while it is called."""
        wrapped: nn.Module = GradSampleModuleExpandedWeights(self.model)
        return wrapped

    @contextmanager
    def label_transient_tensors(self) -> Iterator[None]:
        """Per-sample gradients, before and after they are multiplied by the batch size."""
        names = {parameter: name for name, parameter in self.model.named_parameters()}
        with super().label_transient_tensors(), _label_contributions(self.observer, names):
            yield


@contextmanager
def _label_contributions(observer: Observer, names: dict[nn.Parameter, str]) -> Iterator[None]:
    original = expanded_weights_utils.maybe_scale_by_batch_size

    def scale_and_label(grad_sample: Tensor, expanded_weight: Tensor) -> Tensor:
        name = names.get(expanded_weight.orig_weight, "")  # type: ignore[attr-defined]
        observer.label("per_sample_gradients", [(name, grad_sample)])
        scaled: Tensor = original(grad_sample, expanded_weight)
        observer.label("per_sample_gradients", [(name, scaled)])
        return scaled

    with replaced(expanded_weights_utils, "maybe_scale_by_batch_size", scale_and_label):
        yield
