"""Common part of the trainers over per-sample rules: norms, noise and the optimizer's step."""

import math
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

from dpprof.errors import WorkloadError
from dpprof.measure.trainers.base import TrainerBase
from dpprof.measure.trainers.buckets import together
from dpprof.measure.trainers.nested import as_real, moved
from dpprof.measure.trainers.per_sample.any_module import refuse_other_numbers
from dpprof.measure.trainers.per_sample.book import Book, Entry
from dpprof.measure.trainers.per_sample.layers import install
from dpprof.measure.trainers.products import products_in
from dpprof.measure.trainers.trial_batch import refuse_mixed, tried
from dpprof.measure.workloads.sampling import num_samples
from dpprof.vocabulary.clipping import AUTOMATIC, LAYER_WISE, NOISE_BUFFER, PerSampleOptions
from dpprof.vocabulary.messages import REFUSED_ELSEWHERE
from dpprof.vocabulary.norm_forms import NormCost
from dpprof.vocabulary.parallel import DDP, FSDP2

# Added to a norm by automatic clipping (Bu et al. 2023, "Automatic Clipping", section 4).
_STABILITY = 0.01


class PerSampleTrainer(TrainerBase):
    """A step of DP-SGD (Abadi et al. 2016, algorithm 1) whose norms come from rules for each kind of layer.

    A subclass adds a physical batch's clipped sum to `p.grad`, over the size of the logical batch.
    """

    options: PerSampleOptions
    keeps = True

    def wrap_model(self) -> nn.Module:
        """Install the rules in place of the layers' forwards."""
        self.book = Book({}, self.options.norm, self.keeps)
        self.without_rule = install(self.model, self.book)
        if self.parallel.way == FSDP2:
            self._shard()
        self._is_tried = False
        self.names = self.book.names = {p: name for name, p in self.model.named_parameters()}
        self._trained = set(self.parameters)
        return self.model

    def _shard(self) -> None:
        """Shard the model. Raises WorkloadError for what cannot be trained so."""
        if self.without_rule:
            raise WorkloadError(
                f"{self.without_rule[0]} has no rule for per-sample gradients, and torch.func cannot compute "
                "them of shards: train with parallel=ddp"
            )
        owners = Counter(p for module in self.model.modules() for p in module.parameters(recurse=False))
        tied = [name for name, p in self.model.named_parameters() if owners[p] > 1]
        if tied:
            raise WorkloadError(
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
        """Divisor of this rank's sum over samples."""
        return self.batch_size * self.accumulation_steps

    @classmethod
    def clip_factors(cls, norms: Tensor, max_grad_norm: float, options: Any) -> Tensor:
        """Return the factors of the configured clipping."""
        if options.clipping == LAYER_WISE:  # to C / sqrt(P) each, as Opacus's `per_layer`
            return _factor(norms, _norm_of_one(max_grad_norm, len(norms)), LAYER_WISE)
        whole = torch.linalg.vector_norm(norms, dim=0)
        return _factor(whole, max_grad_norm, options.clipping).expand_as(norms)

    def norm_costs(self) -> dict[str, NormCost]:
        """Return the norm forms that the book chose."""
        return self.book.costs

    def warnings(self) -> list[str]:
        """Warn about modules without a rule."""
        return [
            f"{path} has no rule for per-sample gradient norms: torch.func computes its per-sample gradients"
            for path in self.without_rule
        ]

    def train_on(self, physical_batches: Iterable[Any]) -> None:
        """Do one step on any number of physical batches, moved to the device one at a time.

        Made for Poisson sampling: divides gradients by `batch_size`, the expected logical size; without
        batches, noise alone moves the weights. Raises ValueError unless poisson_sampling=True and
        accumulation_steps=1.
        """
        if not self.poisson_sampling or self.accumulation_steps != 1:
            raise ValueError("train_on needs a trainer with poisson_sampling=True and accumulation_steps=1")
        with products_in(self.precision):
            self.step(moved(batch, self.device) for batch in physical_batches)

    def profile_step(self, *physical_batches: Any) -> None:
        """Try the model first, outside the step, then do the step."""
        for batch in physical_batches[:1]:
            self._try(batch, num_samples(batch) if self.poisson_sampling else self.batch_size)
        super().profile_step(*physical_batches)

    def _try(self, batch: Any, size: int) -> None:
        trial, inputs = self.book.trial, batch[0]
        if size > 1 and (trial is None or trial.size == size):  # of one sample all rows are its own
            trial = self.book.trial = tried(self, batch, size)
            refuse_mixed(self, trial.cut(inputs, size), trial)
            other = trial.of_another_size(size)
            inputs, size = other.cut(inputs, size), other.size
        elif self._is_tried or size == 0:
            return
        self._is_tried = True
        if self.without_rule and not isinstance(self.parameters[0], FakeTensor):
            refuse_other_numbers(self, self.book, inputs, size)

    def step(self, physical_batches: Iterable[Any]) -> None:
        """Accumulate the clipped gradients of all physical batches, then add noise and step the optimizer."""
        if set(self.parameters) != self._trained:
            raise ValueError("the parameters that train are not those that the trainer was made with")
        with self.phase("zero_grad"):
            self.optimizer.zero_grad()
        for batch in physical_batches:
            size = num_samples(batch) if self.poisson_sampling else self.batch_size
            if size == 0:
                continue
            self._try(batch, size)
            self.book.open(size, self.observer, self.balance)
            try:
                with self.phase("forward"):
                    self.last_loss = self._reduced(self.compute_losses(batch))
                self._accumulate_clipped(self.last_loss)
            except BaseException as error:  # Ctrl-C too: what backward left is not clipped
                if isinstance(error, ValueError | WorkloadError) and self.parallel.way == DDP:
                    self.parallel.refuse(self._gradients())
                self.optimizer.zero_grad(set_to_none=True)
                raise
            finally:
                self.book.shut()
        self._add_noise()
        with self.phase("optimizer_step"):
            self.optimizer.step()

    def _reduced(self, losses: Tensor) -> Tensor:
        return losses.sum()

    @abstractmethod
    def _accumulate_clipped(self, loss: Tensor) -> None:
        """Backward and clip: add the physical batch's clipped gradients to `p.grad`."""

    def _add_noise(self) -> None:
        """Exchange gradients if still needed, and add noise, to each number on one rank."""
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
        """Return all parameters' gradients: zeros for unused ones."""
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
        """Run a backward that must leave no gradients; yield what `p.grad` held, and put it back.

        Raises WorkloadError for a parameter that got one: it was used where no rule saw it.
        """
        before = {p: p.grad for p in self.parameters}
        for parameter in before:
            parameter.grad = None
        self.book.is_in_backward = True
        yield before
        self.book.close()
        leaked = [self.names[p] for p in before if p.grad is not None]
        for parameter, gradient in before.items():
            parameter.grad = gradient
        if leaked:
            raise WorkloadError(
                f"{leaked[0]} is used outside the forward of the module that it belongs to, so that its "
                "gradient cannot be clipped for each sample: call the module instead"
            )

    @torch.no_grad()
    def _factors(self) -> dict[nn.Parameter, Tensor]:
        """Each parameter's factors over the logical batch size, shape (B,)."""
        if self.options.clipping == LAYER_WISE:
            self._norms()  # refuses what is not finite
            return {p: self._factors_of_one(entry.squared_norms) for p, entry in self.book.entries.items()}
        norm = self._norms()
        with self.observer.label_new("clip_factors"):
            factors = _factor(norm, self.max_grad_norm, self.options.clipping) / self.logical_batch_size
        return dict.fromkeys(self.parameters, factors)

    @torch.no_grad()
    def _sum_kept(self, factors: dict[nn.Parameter, Tensor]) -> None:
        """Add the clipped sums of what the book keeps to `p.grad`, freeing each on the way."""
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
        """Return this rank's clipped sum, added in place to the gradient so far if possible."""
        return entry.summed(factors_B, self.parallel.base_of_sum(so_far)).to(parameter.dtype)

    def _factors_of_one(self, squared_norms: Tensor) -> Tensor:
        """One parameter's factors under layer-wise clipping."""
        largest = _norm_of_one(self.max_grad_norm, len(self._trained))
        return _factor(squared_norms.sqrt(), largest, LAYER_WISE) / self.logical_batch_size

    @torch.no_grad()
    def _norms(self) -> Tensor:
        """Norms over all parameters, shape (B,). Raises ValueError if one is NaN or infinite on any rank."""
        squared = [entry.squared_norms for entry in self.book.entries.values()]
        squared = squared or [torch.zeros(self.book.batch_size, device=self.device)]
        with self.observer.label_new("gradient_norms"):
            norm = torch.stack(squared).sum(0).sqrt()
        wrong = (~norm.isfinite()).sum()
        of_all = self.parallel.over_ranks(wrong)
        if not isinstance(norm, FakeTensor) and of_all.cpu().numpy():  # no operator, on the CPU
            if not wrong.cpu().numpy():
                raise ValueError(REFUSED_ELSEWHERE)
            raise ValueError(
                f"the gradients of {int(wrong)} of {len(norm)} samples are NaN or too large for their norm "
                "to be computed: nothing was summed"
            )
        return norm


@torch.no_grad()
def add_noise(gradients: list[Tensor], deviation: float, device_type: str) -> None:
    """Add independent noise of this standard deviation to every number of the gradients.

    A complex number is two, between which `normal_` would split the variance. The buffer's size suits the
    device type; small gradients share it, large ones fill it several times, if they can be viewed flat.
    """
    if deviation == 0:
        return
    size = NOISE_BUFFER.get(device_type, NOISE_BUFFER["cpu"])
    each = (
        piece
        for gradient in map(as_real, gradients)
        for piece in (gradient.view(-1).split(size) if gradient.is_contiguous() else [gradient])
    )
    for pieces in together(each, Tensor.numel, size):
        drawn = torch.empty(sum(p.numel() for p in pieces), dtype=pieces[0].dtype, device=pieces[0].device)
        drawn.normal_(0, deviation)
        parts = drawn.split([p.numel() for p in pieces])
        torch._foreach_add_(pieces, [part.view(p.shape) for part, p in zip(parts, pieces, strict=True)])


def _factor(norm: Tensor, max_grad_norm: float, clipping: str) -> Tensor:
    """1 / max(1, norm / C) (Abadi et al. 2016), or with automatic clipping C / (norm + 0.01) (AUTO-S)."""
    if clipping == AUTOMATIC:
        return max_grad_norm / (norm + _STABILITY)
    return 1 / (norm / max_grad_norm).clamp(min=1.0)


def _norm_of_one(max_grad_norm: float, num_parameters: int) -> float:
    """Norm that layer-wise clipping clips each parameter's gradient to."""
    return max_grad_norm / math.sqrt(num_parameters)
