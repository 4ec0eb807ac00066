"""DP-SGD with two backward passes, the first without weight gradients: mixed ghost clipping."""

import torch
from torch import Tensor

from dpprof.measure.trainers.per_sample import clipping
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
            norms = [entry.squared_norms for entry in self.book.entries.values()]
            self._refuse_nonfinite(torch.stack(norms).sum(0))
            largest = clipping.of_one(self.max_grad_norm, len(self.parameters))
            self.book.factors = {
                parameter: clipping.factor(entry.squared_norms.sqrt(), largest, LAYER_WISE)
                for parameter, entry in self.book.entries.items()
            }
            self.book.is_summing = True
            return losses.sum() / self.logical_batch_size
        factors = self._clip_factors()
        self.book.is_summing = True
        return (factors * losses).sum()


def _state(device: torch.device) -> list[Tensor]:
    """The state of the generators that backward may draw from."""
    states = [torch.get_rng_state()]
    return [*states, torch.cuda.get_rng_state(device)] if device.type == "cuda" else states


def _restore(device: torch.device, states: list[Tensor]) -> None:
    torch.set_rng_state(states[0])
    if device.type == "cuda":
        torch.cuda.set_rng_state(states[1], device)
