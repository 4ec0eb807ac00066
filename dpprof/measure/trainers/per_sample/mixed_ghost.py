"""DP-SGD with two backward passes, the first without weight gradients: mixed ghost clipping."""

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import unset_fake_temporarily

from dpprof.measure.trainers.per_sample.trainer import PerSampleTrainer
from dpprof.vocabulary.clipping import LAYER_WISE


class DPMixedGhostTrainer(PerSampleTrainer):
    """A first backward takes norms and keeps nothing; a second one, of the losses weighted by the clip
    factors, is that of ordinary training ("Scalable and Efficient Training of Large Convolutional Neural
    Networks with Differential Privacy", Bu et al. 2022). Holds hardly more than standard training.
    """

    keeps = False

    def _reduced(self, losses: Tensor) -> Tensor:
        """The losses themselves, which are weighted later."""
        return losses

    def _accumulate_clipped(self, loss: Tensor) -> None:
        generator = _state(self.device)
        with self.phase("backward_norms"), self._only_norms():
            loss.sum().backward(retain_graph=True)
        with self.phase("clip"):
            weighted = self._weighted(loss)
        with self.phase("backward_weighted"):
            _restore(self.device, generator)  # so that what a checkpoint draws again is the same
            weighted.backward()

    def _weighted(self, losses: Tensor) -> Tensor:
        if self.options.clipping == LAYER_WISE:
            self._norms()  # refuses what is not finite
            self.book.factors = {
                parameter: self._factors_of_one(entry.squared_norms)
                for parameter, entry in self.book.entries.items()
            }
            self.book.is_summing = True
            return losses.sum() / self.logical_batch_size
        factors = self._clip_factors()
        self.book.is_summing = True
        return (factors * losses).sum()


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
