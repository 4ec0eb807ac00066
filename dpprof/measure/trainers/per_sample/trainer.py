"""What the trainers over per-sample rules share: norms, noise and the optimizer's step."""

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

from dpprof.measure.trainers.base import TrainerBase
from dpprof.measure.trainers.nested import moved
from dpprof.measure.trainers.per_sample import clipping
from dpprof.measure.trainers.per_sample.book import Book, Entry
from dpprof.measure.trainers.per_sample.layers import install
from dpprof.measure.trainers.per_sample.noise import add_noise
from dpprof.measure.workloads.sampling import num_samples
from dpprof.vocabulary.clipping import LAYER_WISE, PerSampleOptions
from dpprof.vocabulary.norm_forms import NormCost
from dpprof.vocabulary.parallel import DDP, FSDP2


class PerSampleTrainer(TrainerBase):
    """A step of DP-SGD (Abadi et al. 2016, algorithm 1) whose norms come from rules for each kind of layer.

    A subclass adds the clipped sum of one physical batch, over the samples of the logical batch, to `p.grad`.
    Batches without samples add nothing.
    """

    options: PerSampleOptions
    keeps = True

    def wrap_model(self) -> nn.Module:
        """The model, its layers with rules in place of their forwards."""
        self.book = Book({}, self.options.norm, self.keeps)
        self.without_rule = install(self.model, self.book)
        if self.parallel.way == FSDP2:
            self._shard()
        self.names = self.book.names = {p: name for name, p in self.model.named_parameters()}
        self._trained = set(self.parameters)
        return self.model

    def _shard(self) -> None:
        """Raises ValueError for what cannot be trained so."""
        if self.without_rule:
            raise ValueError(
                f"{self.without_rule[0]} has no rule for per-sample gradients, and torch.func cannot compute "
                "them of shards: train with parallel=ddp"
            )
        owners = Counter(p for module in self.model.modules() for p in module.parameters(recurse=False))
        tied = [name for name, p in self.model.named_parameters() if owners[p] > 1]
        if tied:
            raise ValueError(
                f"{tied[0]} is tied to another layer's weight, which shards cannot be: untie it, or train "
                "with parallel=ddp"
            )
        self.parallel.sharded(self.model)
        self.book.shards = {
            (id(module), name): parameter
            for module in self.model.modules()
            for name, parameter in module.named_parameters(recurse=False)
        }

    @property
    def logical_batch_size(self) -> int:
        """What this rank's sum over samples is divided by."""
        return self.batch_size * self.accumulation_steps

    @classmethod
    def clip_factors(cls, norms: Tensor, max_grad_norm: float, options: Any) -> Tensor:
        """As `clipping` says."""
        return clipping.factors(norms, max_grad_norm, options.clipping)

    def norm_costs(self) -> dict[str, NormCost]:
        """As the book chose."""
        return self.book.costs

    def warnings(self) -> list[str]:
        """Which modules have no rule."""
        return [
            f"{path} has no rule for per-sample gradient norms: torch.func computes its per-sample gradients"
            for path in self.without_rule
        ]

    def train_on(self, physical_batches: Iterable[Any]) -> None:
        """One training step on a logical batch, given as any number of physical batches; with none, noise
        alone moves the weights. Batches are moved to the device one at a time.

        Gradients are divided by `batch_size`, the expected size of a logical batch, whatever its size: for
        training on Poisson-sampled data. Raises ValueError for a trainer that is not made for that.
        """
        if not self.poisson_sampling or self.accumulation_steps != 1:
            raise ValueError("train_on needs a trainer with poisson_sampling=True and accumulation_steps=1")
        self.step(moved(batch, self.device) for batch in physical_batches)

    def step(self, physical_batches: Iterable[Any]) -> None:
        """Clipped gradients of each physical batch, then noise and the optimizer."""
        if set(self.parameters) != self._trained:
            raise ValueError("the parameters that train are not those that the trainer was made with")
        with self.phase("zero_grad"):
            self.optimizer.zero_grad()
        for batch in physical_batches:
            size = num_samples(batch) if self.poisson_sampling else self.batch_size
            if size == 0:
                continue
            self.book.open(size, self.observer)
            try:
                with self.phase("forward"):
                    self.last_loss = self._reduced(self.compute_losses(batch))
                self._accumulate_clipped(self.last_loss)
            except BaseException:  # Ctrl-C too: what backward left is not clipped
                self.optimizer.zero_grad(set_to_none=True)
                raise
            finally:
                self.book.shut()
        self._add_noise()
        with self.phase("optimizer_step"):
            self.optimizer.step()

    def _reduced(self, losses: Tensor) -> Tensor:
        """What the loop calls its loss, from one loss per sample, shape (B,)."""
        return losses.sum()

    @abstractmethod
    def _accumulate_clipped(self, loss: Tensor) -> None:
        """Backward and clip: add the physical batch's clipped gradients to `p.grad`."""

    def _add_noise(self) -> None:
        """Exchange gradients, where that is still to be done, and add noise: each number's on one rank."""
        if self.parallel.way != DDP:
            with self.phase("noise"):
                self._add_noise_to(self.parallel.begin_exchange(self._gradients()))
            return
        with self.phase("reduce_gradients"):
            gradients = self._gradients()
            pieces = self.parallel.begin_exchange(gradients)
        with self.phase("noise"):
            self._add_noise_to(pieces)
        with self.phase("reduce_gradients"):
            self.parallel.end_exchange(gradients)

    def _gradients(self) -> list[Tensor]:
        """Those of all parameters: zeros for one that was not used."""
        for parameter in self.parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        return [p.grad for p in self.parameters if p.grad is not None]

    def _add_noise_to(self, pieces: list[Tensor]) -> None:
        deviation = self.noise_deviation(self.noise_multiplier, self.max_grad_norm, self.batch_size)
        with self.observer.label_new("noise"):
            add_noise(
                pieces, deviation / (self.logical_batch_size * self.parallel.world_size), self.device_type
            )

    @contextmanager
    def _only_norms(self) -> Iterator[dict[nn.Parameter, Tensor | None]]:
        """Surrounds a backward that must leave no gradient: gives what `p.grad` held, and puts it back.

        Raises ValueError that names a parameter which has one, since no rule saw what it was used for.
        """
        before = {p: p.grad for p in self.parameters}
        for parameter in before:
            parameter.grad = None
        self.book.begin_backward()
        yield before
        self.book.close()
        leaked = [self.names[p] for p in before if p.grad is not None]
        for parameter, gradient in before.items():
            parameter.grad = gradient
        if leaked:
            raise ValueError(
                f"{leaked[0]} is used outside the forward of the module that it belongs to, so that its "
                "gradient cannot be clipped for each sample: call the module instead"
            )

    @torch.no_grad()
    def _clip_factors(self) -> Tensor:
        """Each sample's factor over the size of the logical batch, shape (B,)."""
        norm = self._norms()
        with self.observer.label_new("clip_factors"):
            factors = clipping.factor(norm, self.max_grad_norm, self.options.clipping)
            return factors / self.logical_batch_size

    def _factors(self) -> dict[nn.Parameter, Tensor]:
        """Each parameter's factors over the size of the logical batch, shape (B,)."""
        if self.options.clipping != LAYER_WISE:
            return dict.fromkeys(self.parameters, self._clip_factors())
        self._norms()  # refuses what is not finite
        return {
            parameter: self._factors_of_one(entry.squared_norms)
            for parameter, entry in self.book.entries.items()
        }

    @torch.no_grad()
    def _sum_kept(self, factors: dict[nn.Parameter, Tensor]) -> None:
        """Add the clipped sums of what the book keeps to `p.grad`. Frees each as it goes."""
        for some in self.parallel.together([p for p, entry in self.book.entries.items() if entry.uses]):
            so_far = [parameter.grad for parameter in some]
            sums = [
                self._summed(parameter, self.book.entries.pop(parameter), factors[parameter], before)
                for parameter, before in zip(some, so_far, strict=True)
            ]
            for parameter, gradient in zip(some, self.parallel.exchanged(sums, some, so_far), strict=True):
                parameter.grad = gradient

    def _summed(
        self, parameter: nn.Parameter, entry: Entry, factors_B: Tensor, so_far: Tensor | None
    ) -> Tensor:
        """This rank's clipped sum, added in place to what there is so far if that can be."""
        return entry.summed(factors_B, self.parallel.base_of_sum(so_far)).to(parameter.dtype)

    def _factors_of_one(self, squared_norms: Tensor) -> Tensor:
        """As `_clip_factors`, for one parameter under layer-wise clipping."""
        largest = clipping.of_one(self.max_grad_norm, len(self._trained))
        return clipping.factor(squared_norms.sqrt(), largest, LAYER_WISE) / self.logical_batch_size

    @torch.no_grad()
    def _norms(self) -> Tensor:
        """Norms over all parameters, shape (B,).

        Raises ValueError if one is NaN or infinite: nothing clips that.
        """
        squared = [entry.squared_norms for entry in self.book.entries.values()]
        squared = squared or [torch.zeros(self.book.batch_size, device=self.device)]
        with self.observer.label_new("gradient_norms"):
            norm = torch.stack(squared).sum(0).sqrt()
        wrong = (~norm.isfinite()).sum()
        if not isinstance(norm, FakeTensor) and wrong.cpu().numpy():  # no operator, on the CPU
            raise ValueError(
                f"the gradients of {int(wrong)} of {len(norm)} samples are NaN or too large for their norm "
                "to be computed: nothing was summed"
            )
        return norm
