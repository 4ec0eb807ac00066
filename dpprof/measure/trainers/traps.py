"""Names the cause when training a model fails: one sentence, with what is at fault and the remedy.

Here are the causes that any trainer meets; those of a trainer's library the trainer knows itself
(`TrainerBase.explain`). A sentence is given only where the error and the state of the model prove the cause;
any other error stays as it is.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from dpprof.errors import DpprofError, WorkloadError, describe_error
from dpprof.measure.trainers.base import TrainerBase
from dpprof.measure.trainers.failed_training import FailedTraining
from dpprof.vocabulary.out_of_memory import is_oom

# docs/troubleshooting.md quotes these sentences, with the names in capitals.
SENTENCES = {
    "loss": "the workload's loss must give one value per sample, shape ({batch_size},); it gave {found}: "
    'compute it with reduction="none", and average over all but the samples',
    "batch": "the size of the workload's batches is {length}, but batch_size is {batch_size}: make them of "
    "config.batch_size samples, or set poisson_sampling=true if they are sampled so",
    "empty": "the step with an empty batch failed ({error}), and Poisson sampling gives such batches: let "
    "the model and its loss take no samples too, as view(B, T * D) does and view(B, -1) does not",
}

# What `dpprof check` says of a model that trains nevertheless.
WARNINGS = {
    "dropout": "{module} is a dropout, which drops different units for each trainer, so that their losses "
    "cannot be compared: set its probability to 0 for that, as the gradient check does",
    "draws": "{module} draws random numbers by a function call, as F.dropout(x) does: the gradient check "
    "cannot switch that off, so that it cannot tell; use nn.Dropout",
}


@contextmanager
def traps_named(
    trainer: type[TrainerBase], model: nn.Module, batch_size: Callable[[], int]
) -> Iterator[None]:
    """Let an error inside that is a known trap become a WorkloadError, with the original as its cause.

    `batch_size` tells how many samples the batch had with which it happened.
    """
    try:
        yield
    except DpprofError:
        raise
    except Exception as error:
        sentence = None if is_oom(error) else _sentence(trainer, FailedTraining(error, model, batch_size()))
        if sentence is None:
            raise
        raise WorkloadError(sentence) from error


def _sentence(trainer: type[TrainerBase], failed: FailedTraining) -> str | None:
    own = trainer.explain(failed.error, failed.model, failed.batch_size)
    return own or _loss(failed) or _empty_batch(failed)


def _loss(failed: FailedTraining) -> str | None:
    """The trainer called the loss and rejected its result."""
    trainer = failed.frames[-1]
    if trainer.f_code is not TrainerBase.compute_losses.__code__:
        return None
    losses = trainer.f_locals.get("losses")
    if losses is None:
        return None
    if isinstance(losses, Tensor) and losses.dim() == 1:
        lengths = {t.shape[:1] for t in tree_leaves(trainer.f_locals["batch"]) if isinstance(t, Tensor)}
        if lengths == {losses.shape}:
            return SENTENCES["batch"].format(length=len(losses), batch_size=failed.batch_size)
    found = f"shape {tuple(losses.shape)}" if isinstance(losses, Tensor) else f"a {type(losses).__name__}"
    return SENTENCES["loss"].format(batch_size=failed.batch_size, found=found)


def _empty_batch(failed: FailedTraining) -> str | None:
    """Whatever failed, it failed on an empty batch, after a step with a full one."""
    if failed.batch_size:
        return None
    return SENTENCES["empty"].format(error=describe_error(failed.error).splitlines()[0])
