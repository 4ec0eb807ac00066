"""The book of one physical batch: what backward finds out of each sample's gradient, by parameter."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from dpprof.measure.observe import Observer
from dpprof.measure.trainers.per_sample.uses import PerSample, Products, Rows, Use
from dpprof.vocabulary.clipping import MIXED
from dpprof.vocabulary.norm_forms import NormCost, chosen

# Called with a parameter whose per-sample gradient is complete.
Complete = Callable[[nn.Parameter, "Entry"], None]


@dataclass
class Entry:
    """A parameter's squared norms, shape (B,), and what its clipped sum is made of, if that is kept."""

    squared_norms: Tensor
    uses: list[Use]

    def summed(self, factors_B: Tensor, onto: Tensor | None) -> Tensor:
        """The weighted sum over samples, added in place to `onto` if that is given."""
        for use in self.uses:
            onto = use.summed(factors_B, onto)
        assert onto is not None
        return onto


@dataclass
class Book:
    """Takes what each call of a layer reports in backward.

    A parameter that several calls use, a tied or a reused one, is complete when as many have reported as
    forward had counted.

    Args:
        names: of the parameters.
        form: the form of norms, one of `clipping.NORM_FORMS`.
        keeps: whether a clipped sum will be made of what is reported, or only norms are wanted.
        complete: what to do with a complete parameter; by default it waits in `entries`.
        factors: weights of the samples for each parameter, while the book is summing.
        shards: the parameters of modules, by the module's `id` and their name, in whose place forward has
            gathered tensors.
    """

    names: dict[nn.Parameter, str]
    form: str = MIXED
    keeps: bool = True
    complete: Complete | None = None
    batch_size: int = 0
    is_open: bool = False
    observer: Observer = field(default_factory=Observer)
    factors: dict[nn.Parameter, Tensor] = field(default_factory=dict)
    shards: dict[tuple[int, str], nn.Parameter] = field(default_factory=dict)
    costs: dict[str, NormCost] = field(default_factory=dict)
    entries: dict[nn.Parameter, Entry] = field(default_factory=dict)
    _counted: Counter[nn.Parameter] = field(default_factory=Counter)
    _reported: dict[nn.Parameter, list[Use]] = field(default_factory=dict)
    _is_in_backward: bool = False

    def open(self, batch_size: int, observer: Observer) -> None:
        """Begin the forward of a physical batch. The observer is told what each tensor is."""
        self.is_open, self.batch_size, self.observer = True, batch_size, observer
        self._is_in_backward = False
        self._counted.clear()

    def shut(self) -> None:
        """The physical batch is done: modules compute as their classes do, and nothing of it is kept."""
        self.is_open = False
        self.factors = {}
        self.entries.clear()
        self._reported.clear()

    def parameter(self, module: nn.Module, name: str) -> nn.Parameter | None:
        """A module's parameter, which the book knows it by."""
        found: nn.Parameter | None = self.shards.get((id(module), name), getattr(module, name, None))
        return found

    def count(self, *parameters: nn.Parameter | None) -> None:
        """A layer is called with these; one that is computed again in backward counts once."""
        if not self._is_in_backward:
            self._counted.update(p for p in parameters if p is not None and p.requires_grad)

    def begin_backward(self) -> None:
        """Forward is over."""
        self._is_in_backward = True

    def begin_summing(self, factors: dict[nn.Parameter, Tensor]) -> None:
        """Norms are taken: from now on autograd gets sums, weighted by these."""
        self.factors = factors

    def has_one_use(self, parameter: nn.Parameter) -> bool:
        """Whether a single call of forward had the parameter."""
        return self._counted[parameter] == 1

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """Surrounds a part of backward of which clipped sums will be made."""
        keeps, self.keeps = self.keeps, True
        yield
        self.keeps = keeps

    def take(self, parameter: nn.Parameter, use: Use) -> Tensor | None:
        """What autograd gets for a parameter's gradient: none while norms are taken, else the sum."""
        if self.factors:
            return use.summed(self.factors[parameter])
        uses = self._reported.setdefault(parameter, [])
        uses.append(use)
        if len(uses) >= self._counted[parameter]:
            self._complete(parameter)
        return None

    def close(self) -> None:
        """Backward is over: completes parameters with a call whose output the loss does not need."""
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
            cost = chosen(products.sizes, self.form, size, keeps=self.keeps)
            if cost.is_kept:
                whole = _all_explicit(uses)
                return cost, Entry(whole.squared_norms(), [whole])
        with self.observer.label_new(products.category(cost.form), _is_large):
            squared = products.squares(cost.form)
        if len(uses) > 1:
            rows = uses[1]
            assert isinstance(rows, Rows)
            squared = squared + rows.squared_norms() + 2 * rows.dots_with(products)
        return cost, Entry(squared.clamp(min=0), uses)


def _is_large(shape: torch.Size) -> bool:
    """Whether a tensor has more than a number for each sample."""
    return len(shape) > 1


def _merged(uses: list[Use]) -> list[Use]:
    """At most one of a kind, products first: calls of a layer add up as positions of one call."""
    products = [use for use in uses if isinstance(use, Products)]
    rows = [use for use in uses if isinstance(use, Rows)]
    others = [use for use in uses if isinstance(use, PerSample)]
    merged: list[Use] = []
    if products:
        merged.append(products[0] if len(products) == 1 else Products.joined(products))
    if rows:
        merged.append(rows[0] if len(rows) == 1 else Rows.joined(rows))
    if others:
        merged.append(others[0] if len(others) == 1 else PerSample(sum_of([u.gradients for u in others])))
    return merged


def _all_explicit(uses: list[Use]) -> PerSample:
    return PerSample(sum_of([use.explicit() for use in uses]))


def sum_of(tensors: list[Tensor]) -> Tensor:
    """Their sum, in a tensor of its own only where there are several."""
    return tensors[0] if len(tensors) == 1 else torch.stack(tensors).sum(0)
