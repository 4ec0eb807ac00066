"""DP-SGD with one backward pass: book-keeping (Bu et al., ICML 2023)."""

from torch import Tensor, nn

from dpprof.measure.trainers.per_sample.book import Entry
from dpprof.measure.trainers.per_sample.trainer import PerSampleTrainer
from dpprof.vocabulary.clipping import LAYER_WISE


class DPBookKeepingTrainer(PerSampleTrainer):
    """One forward and one backward in which only the gradients of activations flow. Each layer books its
    input and output gradient and takes its norm; once all norms are there, the clipped sum is one product for
    each layer ("Differentially Private Optimization on Large Model at Small Cost", Bu et al. 2023).

    Unlike the authors' code: a layer keeps its per-sample gradients in place of what it would book, where
    these are smaller; norms have a blocked form; embeddings are added by index; tied and reused weights are
    exact.
    """

    def wrap_model(self) -> nn.Module:
        """With layer-wise clipping, each parameter is summed at once."""
        model = super().wrap_model()
        if self.options.clipping == LAYER_WISE:
            self.book.complete = self._sum_at_once
        return model

    def _accumulate_clipped(self, loss: Tensor) -> None:
        with self.phase("backward"), self._only_norms() as self._sums:
            loss.backward()
        self._sums = {}
        with self.phase("clip"):
            if self.options.clipping == LAYER_WISE:
                self._norms()  # refuses what is not finite; all else is summed already
            else:
                self._sum_kept(self._factors())

    def _sum_at_once(self, parameter: nn.Parameter, entry: Entry) -> None:
        factors = self._factors_of_one(entry.squared_norms)
        so_far = self._sums[parameter]
        total = self._summed(parameter, entry, factors, so_far)
        (self._sums[parameter],) = self.parallel.exchanged([total], [parameter], [so_far])
        entry.uses = []
