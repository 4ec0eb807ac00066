"""Workloads that break the contract, or whose own errors only look like a limit of Opacus, for the tests."""

import itertools
from typing import Any

from example_trapped import Factory, calling, linear, three_dimensions
from torch import Tensor

from dpprof.config.experiment import ExperimentConfig


def loss_per_class(config: ExperimentConfig) -> tuple[Any, ...]:
    model, batches, _ = three_dimensions(config)
    return model, batches, lambda outputs, targets: outputs


def loss_as_a_number(config: ExperimentConfig) -> tuple[Any, ...]:
    model, batches, _ = three_dimensions(config)
    return model, batches, lambda outputs, targets: 1.0


def small_batches(config: ExperimentConfig) -> tuple[Any, ...]:
    model, batches, loss = three_dimensions(config)
    return model, ((ids[:2], targets[:2]) for ids, targets in batches), loss


def batches_of_three(config: ExperimentConfig) -> tuple[Any, ...]:
    model, batches, loss = three_dimensions(config)
    return model, ((ids, targets, 1) for ids, targets in batches), loss


def batches_by_name(config: ExperimentConfig) -> tuple[Any, ...]:
    model, batches, loss = three_dimensions(config)
    return model, ({"ids": ids, "targets": targets} for ids, targets in batches), loss


def batches_of_inputs(config: ExperimentConfig) -> tuple[Any, ...]:
    model, batches, loss = three_dimensions(config)
    return model, (ids for ids, _ in batches), loss


def no_batches(config: ExperimentConfig) -> tuple[Any, ...]:
    model, _, loss = three_dimensions(config)
    return model, config.batch_size, loss


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


def one_batch(config: ExperimentConfig) -> tuple[Any, ...]:
    model, batches, loss = three_dimensions(config)
    return model, [next(batches)], loss


def batches_of_any_size(config: ExperimentConfig) -> tuple[Any, ...]:
    """As a sampling loader gives them."""
    model, batches, loss = three_dimensions(config)
    sizes = itertools.cycle((1, 3, 2))
    cut = ((ids[:size], targets[:size]) for (ids, targets), size in zip(batches, sizes, strict=False))
    return model, cut, loss


reads_a_number = calling(lambda layers, x: layers[0](x) * x.sum().item(), linear)
