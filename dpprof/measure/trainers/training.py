"""A trainer with an endless supply of batches: what the passes observe.

An error that is a known trap is explained in one sentence, with the module at fault and the remedy. Trainers
know the causes in their library, from the error (`TrainerBase.explain`) or from a step without it
(`TrainerBase.foresee`). If that step fails too, or no cause is known, the error stays as it is.
"""

import dataclasses
import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn

from dpprof.config.experiment import ExperimentConfig
from dpprof.errors import DpprofError, WorkloadError
from dpprof.measure.observe import Observer
from dpprof.measure.trainers.base import SENTENCES, Held
from dpprof.measure.trainers.build import build_trainer, load_trainer
from dpprof.measure.trainers.draws import drawn_again, state_of
from dpprof.measure.trainers.nested import call, moved
from dpprof.measure.trainers.parallel import all_local
from dpprof.measure.trainers.watched_step import watch_step
from dpprof.measure.workloads.factory import first_line
from dpprof.measure.workloads.sampling import batch_sizes, num_samples, sampled
from dpprof.measure.workloads.workload import build_workload, checked_batch
from dpprof.vocabulary.messages import is_oom

# Warnings of `dpprof check` about a model that trains nevertheless. docs/troubleshooting.md quotes them too.
WARNINGS = {
    "dropout": "{module} drops different units for each trainer, so that their losses cannot be compared: "
    "set its dropout to 0 for that, as the gradient check does",
    "draws": "{module} draws random numbers by a function call, as F.dropout(x) does: the gradient check "
    "cannot switch that off, so that it cannot tell; use nn.Dropout",
}


class Training:
    """The configured trainer over a new workload; an estimate's tensors are on `tensor_device`.

    Under Poisson sampling, batch sizes depend on `is_timed`: whether steps are timed or observed otherwise
    (`sampling.batch_sizes`). `num_samples` lists the sizes of these batches so far.
    """

    def __init__(
        self, config: ExperimentConfig, tensor_device: str | None = None, *, is_timed: bool = False
    ) -> None:
        self._process = os.getpid()
        self._config = self._built = config
        if tensor_device is not None:  # a GPU's name, and tensors elsewhere
            how = dataclasses.replace(config.estimating, target="none")
            self._built = dataclasses.replace(config, device=tensor_device, how=how)
        workload = build_workload(self._built)
        self.model, self.tokens_per_batch = workload.model, workload.tokens_per_batch
        self.changed, self._warnings = workload.changed, workload.warnings
        self.num_samples: list[int] = []
        with self._traps_named():
            self.trainer = build_trainer(config, workload, tensor_device)
        self.norm_costs = self.trainer.norm_costs
        # Each rank has its share of the batches and its own noise.
        rank, world_size = self.trainer.parallel.rank, self.trainer.parallel.world_size
        self._batches: Iterator[Any] = itertools.islice(
            _without_end(workload.batches), rank, None, world_size
        )
        if rank:
            torch.manual_seed(config.seed + rank)
        if config.poisson_sampling:
            self._batches = sampled(self._batches, batch_sizes(config, is_timed=is_timed))
        end_if_forked(self._process)

    @contextmanager
    def _traps_named(self) -> Iterator[None]:
        """Turn an error that is a known trap into a WorkloadError, with the original as its cause."""
        try:
            yield
        except DpprofError:
            raise
        except Exception as error:
            if is_oom(error):
                raise
            batch_size = self.num_samples[-1] if self.num_samples else self._config.batch_size
            sentence = load_trainer(self._config.trainer).explain(error, self.model, batch_size)
            if not sentence and batch_size == 0:
                sentence = SENTENCES["empty"].format(error=first_line(error))
            sentence = sentence or self._foreseen()
            if sentence is None:
                raise
            raise WorkloadError(sentence) from error

    def _foreseen(self) -> str | None:
        """Return the library's first limit in a model that trains without the library."""
        try:
            workload = build_workload(self._built)
            batch = checked_batch(next(iter(workload.batches)))
            step = watch_step(workload, moved(batch, torch.device(self._built.device)), self._built)
        except Exception:
            return None
        foreseen = load_trainer(self._config.trainer).foresee(step)
        return next((trap.text for trap in foreseen if not trap.is_warning), None)

    def run(self, num_steps: int, observer: Observer) -> None:
        """Do `num_steps` training steps under the observer.

        Raises ValueError if the batches run out, WorkloadError for known faults of model, loss or batch.
        """
        try:
            with self._traps_named():
                batches = self._take(num_steps * self._config.accumulation_steps)
                self.trainer.run_profiling(batches, observer)
        finally:
            end_if_forked(self._process)

    def _take(self, num_batches: int) -> Iterator[Any]:
        for batch in itertools.islice(self._batches, num_batches):
            end_if_forked(self._process)
            if self._config.poisson_sampling:
                self.num_samples.append(num_samples(batch))
            yield batch

    def warnings(self) -> list[str]:
        """Return warnings about a model that trains, the workload's and the trainer's."""
        return [*self._warnings, *self.trainer.warnings()]

    def held_tensors(self) -> Held:
        """Return this rank's part of the tensors that the trainer holds now, with names, by category."""
        return {category: all_local(held) for category, held in self.trainer.held_tensors().items()}

    def lost_gradients(self) -> list[str]:
        """Return the names of weights that have a gradient of the loss, and none of the trainer.

        Trains one step without noise, and a second one if a gradient is 0, as the loss may be flat at first.
        """
        batches = tuple(self._take(self._config.accumulation_steps))
        while self.num_samples[-1:] == [0]:
            batches = tuple(self._take(self._config.accumulation_steps))
        silent = self._silent_after_step(batches)
        if not silent:
            return []
        device = self.trainer.device
        state = state_of(device)
        silent &= self._silent_after_step(batches)
        named = {name: p for name, p in self.model.named_parameters() if name in silent}
        lost: set[str] = set()
        with drawn_again(device, state):
            for batch in batches if named else ():
                gradients = self._of_loss(moved(batch, device), list(named.values()))
                # A tiny gradient may become 0 by clipping.
                shows = [bool((g.abs() > torch.finfo(g.dtype).tiny ** 0.5).any()) for g in gradients]
                lost.update(itertools.compress(named, shows))
        return [name for name in named if name in lost]

    def _silent_after_step(self, batches: Sequence[Any]) -> set[str]:
        trainer = self.trainer
        of_optimizer = patch.object(trainer.optimizer, "noise_multiplier", 0.0, create=True)  # Opacus's own
        with patch.object(trainer, "noise_multiplier", 0.0), of_optimizer:
            trainer.run_profiling(batches, Observer())
        trained = ((name, p) for name, p in self.model.named_parameters() if p.requires_grad)
        return {name for name, p in trained if p.grad is None or not torch.count_nonzero(p.grad)}

    def _of_loss(self, batch: Any, parameters: list[nn.Parameter]) -> list[Tensor]:
        """Gradients of the sum of a batch's losses; zeros for unused parameters."""
        inputs, targets = batch
        trainer = self.trainer
        with trainer.unhooked():
            with torch.autocast(trainer.device.type, torch.bfloat16, enabled=trainer.precision == "bf16"):
                losses = trainer.loss(call(self.model, inputs), targets)
            return list(torch.autograd.grad(losses.sum(), parameters, materialize_grads=True))


def _without_end(batches: Iterable[Any]) -> Iterator[Any]:
    yield from map(checked_batch, batches)  # holds no batch while the next one is made
    raise ValueError("the workload's batches ended: they must go on without end")


def end_if_forked(process: int) -> None:
    """End this process if the workload forked it from `process`: it would measure and write too."""
    if os.getpid() != process:
        os._exit(0)
