"""Builds a workload by name, and checks that it keeps the contract of docs/own_model.md.

`workload=package.module:factory`, or the target of a listed workload (`vocabulary/workloads.py`), names a
function that takes the `ExperimentConfig` and returns a `Workload`, or a plain tuple `(model, batches,
loss)`. It is called several times in one process, and must not keep state between calls. A listed workload's
factory gets its own options from `config.options_of(TheirDataclass)`.
"""

import operator
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from dpprof.config.experiment import ExperimentConfig
from dpprof.errors import ConfigError, DpprofError, WorkloadError
from dpprof.measure.workloads.factory import first_line, load_factory
from dpprof.measure.workloads.memory_format import ChannelsLast, store_channels_last
from dpprof.measure.workloads.trainable import choose_trainable
from dpprof.vocabulary.messages import is_oom

Batch = tuple[Any, Any]
_MOST_TOKENS = 2**53  # a float counts exactly up to here


class Workload(NamedTuple):
    """A model, its batches and its loss per sample: one item of `batches` is one physical batch, a pair.

    `tokens_per_batch` is None where counting tokens makes no sense; `changed` describes changes to the model,
    `warnings` what else to know of it.
    """

    model: nn.Module
    batches: Iterable[Batch]
    loss: Callable[[Any, Any], Tensor]
    tokens_per_batch: int | None = None
    changed: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def build_workload(config: ExperimentConfig) -> Workload:
    """Build the configured workload on the configured device, reproducibly.

    Raises ConfigError if the factory cannot be found, breaks the contract, or makes a model that cannot train
    as `train` or `channels_last` say; WorkloadError if it raises an error, other than for lack of memory.
    """
    torch.manual_seed(config.seed)
    with torch.device(config.device):
        workload = _checked(config.workload, _made(config))
        changed = [*workload.changed, *choose_trainable(workload.model, config)]
        if config.channels_last:
            changed.append(store_channels_last(workload.model))
            workload = workload._replace(batches=ChannelsLast(workload.batches))
        return workload._replace(changed=tuple(changed))


def checked_batch(batch: Any) -> Any:
    """Return the batch if it is a pair. Raises WorkloadError otherwise."""
    if isinstance(batch, tuple | list) and len(batch) == 2:
        return batch
    found = "Tensor" if isinstance(batch, Tensor) else type(batch).__name__
    size = f" of {len(batch)}" if isinstance(batch, tuple | list) else ""
    raise WorkloadError(f"the workload's batches must be pairs (inputs, targets), it gave a {found}{size}")


def _made(config: ExperimentConfig) -> Any:
    """Call the workload's factory. Errors in an estimate stay as they are: fake tensors may cause them."""
    factory = load_factory(config.workload)
    try:
        return factory(config)
    except DpprofError:
        raise
    except Exception as error:
        if config.is_estimate or is_oom(error):
            raise
        raise WorkloadError(f"workload: {config.workload} raised {first_line(error)}") from error


def _checked(name: str, made: object) -> Workload:
    if isinstance(made, tuple) and 3 <= len(made) <= len(Workload._fields):
        workload = Workload(*made)
        batches = hasattr(workload.batches, "__iter__") or hasattr(workload.batches, "__getitem__")
        if isinstance(workload.model, nn.Module) and batches and callable(workload.loss):
            return workload._replace(tokens_per_batch=_num_tokens(name, workload.tokens_per_batch))
    kinds = ", ".join(type(part).__name__ for part in (made if isinstance(made, tuple) else [made]))
    raise ConfigError(f"workload: {name} must return (model, batches, loss), it returned {kinds}")


def _num_tokens(name: str, given: Any) -> int | None:
    if given is None:
        return None
    with suppress(Exception):
        tokens = operator.index(given)
        if 0 < tokens <= _MOST_TOKENS:
            return tokens
    found = repr(given)[:60] if isinstance(given, str | float) else type(given).__name__
    raise ConfigError(
        f"workload: {name} must give tokens_per_batch as a whole number above 0, or None; it gave {found}"
    )
