"""Explains failed training in one sentence, with the module at fault and the remedy.

Trainers know the causes in their library, from the error (`TrainerBase.explain`) or from a step without it
(`TrainerBase.foresee`). If that step fails too, or no cause is known, the error stays as it is.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from traceback import walk_tb

from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from dpprof.errors import DpprofError, WorkloadError
from dpprof.measure.trainers.base import TrainerBase
from dpprof.measure.trainers.watched_step import WatchedStep
from dpprof.measure.workloads.factory import first_line
from dpprof.vocabulary.messages import is_oom

# docs/troubleshooting.md quotes these sentences, with the names in capitals.
SENTENCES = {
    "loss": "the workload's loss must give one value per sample, shape ({batch_size},); it gave {found}: "
    'compute it with reduction="none", and average over all but the samples',
    "batch": "the size of the workload's batches is {length}, but batch_size is {batch_size}: make them of "
    "config.batch_size samples, or set poisson_sampling=true if they are sampled so",
    "empty": "the step with an empty batch failed ({error}), and Poisson sampling gives such batches: let "
    "the model and its loss take no samples too, as view(B, T * D) does and view(B, -1) does not",
}

# Warnings of `dpprof check` about a model that trains nevertheless.
WARNINGS = {
    "dropout": "{module} drops different units for each trainer, so that their losses cannot be compared: "
    "set its dropout to 0 for that, as the gradient check does",
    "draws": "{module} draws random numbers by a function call, as F.dropout(x) does: the gradient check "
    "cannot switch that off, so that it cannot tell; use nn.Dropout",
}


@contextmanager
def traps_named(
    trainer: type[TrainerBase],
    model: nn.Module,
    batch_size: Callable[[], int],
    watch: Callable[[], WatchedStep],
) -> Iterator[None]:
    """Turn an error that is a known trap into a WorkloadError, with the original as its cause.

    `batch_size` returns the failing batch's size; `watch` does a step without the trainer's library.
    """
    try:
        yield
    except DpprofError:
        raise
    except Exception as error:
        if is_oom(error):
            raise
        size = batch_size()
        own = trainer.explain(error, model, size)
        sentence = own or _loss(error, size) or _empty_batch(error, size) or _foreseen(trainer, watch)
        if sentence is None:
            raise
        raise WorkloadError(sentence) from error


def _foreseen(trainer: type[TrainerBase], watch: Callable[[], WatchedStep]) -> str | None:
    """Return the library's first limit in a model that trains without the library."""
    try:
        step = watch()
    except Exception:
        return None
    return next((trap.text for trap in trainer.foresee(step) if not trap.is_warning), None)


def _loss(error: Exception, batch_size: int) -> str | None:
    (*_, (trainer, _)) = walk_tb(error.__traceback__)
    if trainer.f_code is not TrainerBase.compute_losses.__code__:
        return None
    losses = trainer.f_locals.get("losses")
    if losses is None:
        return None
    if isinstance(losses, Tensor) and losses.dim() == 1:
        lengths = {t.shape[:1] for t in tree_leaves(trainer.f_locals["batch"]) if isinstance(t, Tensor)}
        if lengths == {losses.shape}:
            return SENTENCES["batch"].format(length=len(losses), batch_size=batch_size)
    found = f"shape {tuple(losses.shape)}" if isinstance(losses, Tensor) else f"a {type(losses).__name__}"
    return SENTENCES["loss"].format(batch_size=batch_size, found=found)


def _empty_batch(error: Exception, batch_size: int) -> str | None:
    return None if batch_size else SENTENCES["empty"].format(error=first_line(error))
