"""DP-SGD whose per-sample gradients come from torch's expanded weights."""

from collections.abc import Iterator
from contextlib import contextmanager

from opacus.grad_sample import GradSampleModuleExpandedWeights
from torch import Tensor, nn
from torch.nn.utils._expanded_weights import expanded_weights_utils

from dpprof.measure.observe import Observer
from dpprof.measure.trainers.opacus.dpsgd import DPSGDTrainer
from dpprof.measure.trainers.opacus.expanded_traps import diagnose_expanded
from dpprof.measure.trainers.opacus.silent_traps import mixed_samples
from dpprof.measure.trainers.replaced import replaced
from dpprof.measure.trainers.seen import Trap, WatchedStep


class DPExpandedWeightsTrainer(DPSGDTrainer):
    """Flat clipping with `grad_sample_mode="ew"`: forward runs on `ExpandedWeight`s, a tensor subclass of
    torch's whose linear layers, convolutions, embeddings and norms have backward rules that give per-sample
    gradients, and no other gradient of a weight."""

    def wrap_model(self) -> nn.Module:
        """With expanded weights in place of its parameters while it is called."""
        wrapped: nn.Module = GradSampleModuleExpandedWeights(self.model)
        return wrapped

    @classmethod
    def explain(cls, error: Exception, model: nn.Module, batch_size: int) -> str | None:
        """The sentence for a limit of expanded weights."""
        return diagnose_expanded(error, model, batch_size)

    @classmethod
    def foresee(cls, step: WatchedStep) -> list[Trap]:
        """Only what raises no error: the limits of Opacus's hooks are not those of expanded weights."""
        return [Trap("silent", text, "", is_warning=True) for text in mixed_samples(step.model)]

    def warnings(self) -> list[str]:
        """Batch norms without trainable parameters."""
        return list(mixed_samples(self.model))

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
