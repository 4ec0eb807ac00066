"""Book of one physical batch: each parameter's per-sample norms, collected in backward."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from dpprof.config.devices import CPU_BALANCE
from dpprof.errors import WorkloadError
from dpprof.measure.observe import Observer
from dpprof.measure.trainers.per_sample.uses import PerSample, Products, Rows, Use, sum_of
from dpprof.measure.trainers.trial_batch import Trial
from dpprof.vocabulary.clipping import MIXED
from dpprof.vocabulary.norm_forms import Balance, NormCost, chosen

# Called with a parameter whose per-sample gradient is complete.
Complete = Callable[[nn.Parameter, "Entry"], None]


@dataclass
class Entry:
    """A parameter's squared norms, shape (B,), and the uses that its clipped sum is made of, if kept."""

    squared_norms: Tensor
    uses: list[Use]

    def summed(self, factors_B: Tensor, onto: Tensor | None) -> Tensor:
        """Return the weighted sum over samples, added in place to `onto` if given."""
        for use in self.uses:
            onto = use.summed(factors_B, onto)
        assert onto is not None
        return onto


@dataclass
class Book:
    """Collects the reports of layer calls in backward.

    A tied or reused parameter is complete when as many calls have reported as forward counted.

    Args:
        names: of the parameters.
        form: form of norms, one of `clipping.NORM_FORMS`.
        trial: tells tensors that begin with the batch from those that only look so.
        keeps: True if clipped sums will be made of the reports, not only norms.
        keeps_larger: False to keep no per-sample gradients that are larger than what they are products of.
        complete: called with a complete parameter; by default it waits in `entries`.
        is_in_backward: set when forward ends.
        factors: sample weights per parameter, set when all norms are known: autograd then gets weighted sums.
        shards: parameters by their module's `id` and name, for which forward uses gathered tensors.
        noted_calls: calls of modules without a rule, noted in a trial.
    """

    names: dict[nn.Parameter, str]
    form: str = MIXED
    keeps: bool = True
    keeps_larger: bool = True
    complete: Complete | None = None
    batch_size: int = 0
    balance: Balance = CPU_BALANCE
    is_open: bool = False
    is_in_backward: bool = False
    trial: Trial | None = None
    observer: Observer = field(default_factory=Observer)
    factors: dict[nn.Parameter, Tensor] = field(default_factory=dict)
    shards: dict[tuple[int, str], nn.Parameter] = field(default_factory=dict)
    costs: dict[str, NormCost] = field(default_factory=dict)
    noted_calls: list[Any] | None = None
    entries: dict[nn.Parameter, Entry] = field(default_factory=dict)
    _counted: Counter[nn.Parameter] = field(default_factory=Counter)
    _reported: dict[nn.Parameter, list[Use]] = field(default_factory=dict)

    def open(self, batch_size: int, observer: Observer, balance: Balance) -> None:
        """Begin a physical batch. The observer gets labels; `balance` decides between norm forms."""
        self.is_open, self.batch_size, self.observer, self.balance = True, batch_size, observer, balance
        self.is_in_backward = False
        self._counted.clear()

    def shut(self) -> None:
        """End the physical batch: modules compute as usual again, and nothing is kept."""
        self.is_open = False
        self.factors = {}
        self.entries.clear()
        self._reported.clear()

    def begins_with_batch(self, tensor: Tensor, path: str, argument: str = "") -> bool:
        """Tell if an argument of a module has a row for each sample."""
        if self.trial is None:
            return tensor.shape[:1] == (self.batch_size,)
        return self.trial.begins_with_batch(tensor, self.batch_size, path, argument)

    def count(self, path: str, *parameters: nn.Parameter | None) -> None:
        """Count a call of a layer with these parameters; recomputation in backward does not count.

        Raises WorkloadError for a tensor that is not a parameter of the model.
        """
        trained = [p for p in parameters if p is not None and p.requires_grad]
        if not self.names.keys() >= set(trained):
            raise WorkloadError(
                f"{path} is called with a weight or bias that is no parameter of the model: compute it in "
                "the forward of a subclass"
            )
        if not self.is_in_backward:
            self._counted.update(trained)

    def has_one_use(self, parameter: nn.Parameter) -> bool:
        """Tell whether exactly one call of forward used the parameter."""
        return self._counted[parameter] == 1

    def take(self, parameter: nn.Parameter, use: Use) -> Tensor | None:
        """Return what autograd gets as a parameter's gradient: None while collecting norms, then the sum.

        Ignores gradients taken in forward; raises WorkloadError if one is to be differentiated.
        """
        if not self.is_in_backward:
            if torch.is_grad_enabled():
                raise WorkloadError(
                    f"{self.names[parameter]} is used in a gradient that the model or its loss takes with "
                    "create_graph=True, and no rule differentiates that: leave it out of the loss"
                )
            return None
        if self.factors:
            return use.summed(self.factors[parameter])
        uses = self._reported.setdefault(parameter, [])
        uses.append(use)
        if len(uses) >= self._counted[parameter]:
            self._complete(parameter)
        return None

    def close(self) -> None:
        """End backward: complete parameters of which some call does not affect the loss."""
        for parameter in list(self._reported):
            self._complete(parameter)

    def _complete(self, parameter: nn.Parameter) -> None:
        name = self.names[parameter]
        if parameter in self.entries:
            raise RuntimeError(f"{name} was reported again after its norm had been taken")
        uses = _merged(self._reported.pop(parameter))
        cost, entry = self._entered(uses)
        if cost is not None:
            self.costs[name] = cost
        if not self.keeps:
            entry.uses = []
        self.observer.label("gradient_norms", [(name, entry.squared_norms)])
        for use in entry.uses:
            self.observer.label(use.held_category, [(name, use.held)])
        self.entries[parameter] = entry
        if self.complete is not None:
            self.complete(parameter, entry)

    def _entered(self, uses: list[Use]) -> tuple[NormCost | None, Entry]:
        products = next((use for use in uses if isinstance(use, Products)), None)
        if len(uses) > 1 and (products is None or not isinstance(uses[1], Rows) or len(uses) > 2):
            products = None
            uses = [_all_explicit(uses)]
        with self.observer.label_new("per_sample_gradients", _is_large):
            if products is None:
                return None, Entry(uses[0].squared_norms(), uses)
            size = products.left.element_size()
            cost = chosen(
                products.sizes,
                self.form,
                size,
                self.balance,
                keeps=self.keeps,
                keeps_larger=self.keeps_larger,
            )
            if cost.is_kept:
                whole = _all_explicit(uses)
                return cost, Entry(whole.squared_norms(), [whole])
        with self.observer.label_new("gram_matrices" if cost.is_gram else "per_sample_gradients", _is_large):
            squared = products.squares(cost)
        if len(uses) > 1:
            rows = uses[1]
            assert isinstance(rows, Rows)
            squared = squared + rows.squared_norms() + 2 * rows.dots_with(products)
        return cost, Entry(squared.clamp(min=0), uses)


def _is_large(shape: torch.Size) -> bool:
    return len(shape) > 1


def _merged(uses: list[Use]) -> list[Use]:
    """Merge uses to at most one per kind, products first: calls of a layer are like positions of one call."""
    merged: list[Use] = []
    for kind in (Products, Rows, PerSample):
        alike = [use for use in uses if isinstance(use, kind)]
        merged += alike if len(alike) < 2 else [kind.joined(alike)]  # type: ignore[arg-type]
    return merged


def _all_explicit(uses: list[Use]) -> PerSample:
    return PerSample(sum_of([use.explicit() for use in uses]))
