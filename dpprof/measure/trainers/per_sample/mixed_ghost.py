"""DP-SGD with two backward passes, the first without weight gradients: mixed ghost clipping."""

from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import unset_fake_temporarily

from dpprof.measure.trainers.per_sample.top import differentiate, ends_of
from dpprof.measure.trainers.per_sample.trainer import PerSampleTrainer


class DPMixedGhostTrainer(PerSampleTrainer):
    """A first backward takes norms and keeps nothing; a second one sums each weight's gradient with the clip
    factors ("Scalable and Efficient Training of Large Convolutional Neural Networks with Differential
    Privacy", Bu et al. 2022). Holds hardly more than standard training.

    Unlike the authors' code: gradients of activations are the same in both, as factors weigh the sums and not
    the losses. So what is above the last layer's input is differentiated once, and its weights are summed as
    `DPBookKeepingTrainer` does.
    """

    keeps = False

    def compute_outputs(self, inputs: Any) -> Any:
        """Notes where the second backward may begin."""
        outputs = super().compute_outputs(inputs)
        self._ends = ends_of(outputs)
        return outputs

    def _reduced(self, losses: Tensor) -> Tensor:
        """The losses themselves."""
        return losses

    def _accumulate_clipped(self, loss: Tensor) -> None:
        generator = _state(self.device)
        with self.phase("backward_norms"), self._only_norms():
            ends, self._ends = self._ends, []  # a step's graph goes with it
            start = differentiate(loss, ends, self.book)
            self.observer.label("output_gradients", [("top", start.gradient)])
            start.backward(again=True)
        with self.phase("clip"):
            self.book.begin_summing(self._factors())
            self._sum_kept(self.book.factors)
        with self.phase("backward_weighted"):
            _restore(self.device, generator)  # so that what a checkpoint draws again is the same
            start.backward(again=False)


def _state(device: torch.device) -> list[bytes]:
    """The state of the generators that backward may draw from, outside of torch's memory."""
    with unset_fake_temporarily():
        states = [torch.get_rng_state()]
        if device.type == "cuda" and torch.cuda.is_available():
            states.append(torch.cuda.get_rng_state(device))
        return [state.numpy().tobytes() for state in states]


def _restore(device: torch.device, states: list[bytes]) -> None:
    with unset_fake_temporarily():
        tensors = [torch.frombuffer(bytearray(state), dtype=torch.uint8) for state in states]
        torch.set_rng_state(tensors[0])
        if len(tensors) > 1:
            torch.cuda.set_rng_state(tensors[1], device)
