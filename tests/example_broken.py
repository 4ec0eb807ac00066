"""Workloads that break the contract, or whose own errors only look like a limit of Opacus, for the tests."""

import itertools
from collections.abc import Callable
from typing import Any

from example_trapped import Factory, calling, linear, three_dimensions
from torch import Tensor

from dpprof.config.experiment import ExperimentConfig


def _changed(change: Callable[[Any, Any, Any], tuple[Any, ...]]) -> Factory:
    """The workload with another model, other batches or another loss."""
    return lambda config: change(*three_dimensions(config))


loss_per_class = _changed(lambda model, batches, _: (model, batches, lambda outputs, targets: outputs))
loss_as_a_number = _changed(lambda model, batches, _: (model, batches, lambda outputs, targets: 1.0))
small_batches = _changed(lambda model, batches, loss: (model, ((x[:2], y[:2]) for x, y in batches), loss))
batches_of_three = _changed(lambda model, batches, loss: (model, ((x, y, 1) for x, y in batches), loss))
batches_by_name = _changed(lambda model, batches, loss: (model, ({"x": x, "y": y} for x, y in batches), loss))
batches_of_inputs = _changed(lambda model, batches, loss: (model, (x for x, _ in batches), loss))
no_batches = _changed(lambda model, batches, loss: (model, 3, loss))
one_batch = _changed(lambda model, batches, loss: (model, [next(batches)], loss))


def raises(config: ExperimentConfig) -> tuple[Any, ...]:
    raise KeyError("weights")


def runs_out_of_memory(config: ExperimentConfig) -> tuple[Any, ...]:
    raise MemoryError


def failing(error: Exception) -> Factory:
    def fail(layers: Any, x: Tensor) -> Tensor:
        raise error

    return calling(fail, linear)


stacks = failing(RuntimeError("stack expects each tensor to be equal size, but got [3] and [1]"))
misses = failing(AttributeError("'Parameter' object has no attribute '_norm_sample'"))
lacks = failing(TypeError("f() missing 1 required positional argument: 'x'"))


def batches_of_any_size(config: ExperimentConfig) -> tuple[Any, ...]:
    """As a sampling loader gives them."""
    model, batches, loss = three_dimensions(config)
    sizes = itertools.cycle((1, 3, 2))
    cut = ((ids[:size], targets[:size]) for (ids, targets), size in zip(batches, sizes, strict=False))
    return model, cut, loss


reads_a_number = calling(lambda layers, x: layers[0](x) * x.sum().item(), linear)
