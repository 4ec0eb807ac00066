"""The model and the optimizers of a loop."""

import sys
from weakref import WeakValueDictionary, ref

from torch import nn
from torch.optim import Optimizer

from dpprof.measure.trainers.base import Held, held_by
from dpprof.vocabulary.norm_forms import NormCost

OPACUS = "opacus.grad_sample"


class Followed:
    """The model and the optimizers of a loop, given or seen. They live no longer than without it."""

    def __init__(self, model: nn.Module | None, optimizers: list[Optimizer]) -> None:
        self._given = ref(model) if model is not None else None
        self._called: WeakValueDictionary[int, nn.Module] = WeakValueDictionary()
        self._optimizers = [ref(optimizer) for optimizer in optimizers]

    @property
    def model(self) -> nn.Module:
        """The model that was given; else, of those called, the one with most numbers of the optimizers'.

        Of several as good, the largest; an empty one if none is alive.
        """
        if self._given is not None:
            return self._given() or nn.Module()
        trained = {id(p) for one in self.optimizers for group in one.param_groups for p in group["params"]}

        def worth(module: nn.Module) -> tuple[int, int]:
            sizes = {id(p): p.numel() for p in module.parameters()}
            return sum(size for key, size in sizes.items() if key in trained), sum(sizes.values())

        return max(self._called.values(), key=worth, default=nn.Module())

    @property
    def other_models(self) -> list[nn.Module]:
        """Other models that were called, with parameters that are none of the model's."""
        own = {id(p) for p in self.model.parameters()}
        return [one for one in self._called.values() if any(id(p) not in own for p in one.parameters())]

    @property
    def optimizers(self) -> list[Optimizer]:
        """The optimizers that are alive, the first seen first."""
        return [found for one in self._optimizers if (found := one()) is not None]

    def see_model(self, model: nn.Module) -> None:
        """Learn a model that was called from outside of others."""
        self._called[id(model)] = model

    def see_optimizer(self, optimizer: Optimizer) -> None:
        """Learn an optimizer that steps."""
        if optimizer not in self.optimizers:
            self._optimizers.append(ref(optimizer))

    def held_tensors(self) -> Held:
        """Return the tensors held now, by category; only categories with any."""
        held = held_by(self.model, self.optimizers)
        if OPACUS in sys.modules:
            from dpprof.measure.trainers.opacus.labels import kept_by_opacus

            held |= kept_by_opacus(self.model, self.model)
        return held

    def norm_costs(self) -> dict[str, NormCost]:
        """Return nothing: how a loop computes norms is its own affair."""
        return {}
