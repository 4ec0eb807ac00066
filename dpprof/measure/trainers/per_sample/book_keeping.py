"""DP-SGD with one backward pass: book-keeping (Bu et al., ICML 2023)."""

from torch import Tensor, nn

from dpprof.measure.trainers.per_sample.book import Entry
from dpprof.measure.trainers.per_sample.trainer import PerSampleTrainer
from dpprof.vocabulary.clipping import LAYER_WISE


class DPBookKeepingTrainer(PerSampleTrainer):
    """Book-keeping: one forward, and one backward of activation gradients only.

    Each layer books its input and output gradient and computes its norm; then each clipped sum is one product
    ("Differentially Private Optimization on Large Model at Small Cost", Bu et al. 2023). Unlike the authors'
    code: layers keep per-sample gradients where these are smaller; norms have a blocked form; embeddings are
    added by index; tied and reused weights are exact.
    """

    def wrap_model(self) -> nn.Module:
        """Sum each parameter at once under layer-wise clipping."""
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
