"""Runs the passes of one experiment. The only place where trainers and passes meet."""

import dataclasses
import gc
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from dpprof.config.estimating import ESTIMATE
from dpprof.config.experiment import ExperimentConfig
from dpprof.config.flat import to_flat
from dpprof.config.measuring import ALONE, CLEAN
from dpprof.errors import describe_error
from dpprof.measure import estimate, gradient_check, verify
from dpprof.measure.environment import describe_environment
from dpprof.measure.observe import Observer, Subject
from dpprof.measure.passes import alone, ceilings, clean, counters, ledger, memory, pace, trace
from dpprof.measure.passes.weights import parameter_groups
from dpprof.measure.place import place_in
from dpprof.measure.ranks import Ranks
from dpprof.measure.told_by_ranks import ToldByRanks
from dpprof.measure.trainers.build import build_trainer, load_trainer
from dpprof.measure.trainers.parallel import all_local
from dpprof.measure.trainers.traps import traps_named
from dpprof.measure.workloads.sampling import batch_sizes, num_samples, sampled
from dpprof.measure.workloads.workload import Workload, build_workload, checked_batch
from dpprof.record.folder import RunFolder
from dpprof.record.record import PassOutcome, Record
from dpprof.vocabulary.norm_forms import NormCost


class PassFailed(Exception):
    """A pass failed; the record says which. The cause is the original error."""


class ExperimentTraining:
    """A trainer with an endless supply of batches.

    `is_timed` says whether steps are timed or looked at otherwise: under Poisson sampling these have batches
    of other sizes (`sampling.batch_sizes`). `num_samples` holds the samples of each such batch so far.
    """

    def __init__(
        self,
        config: ExperimentConfig,
        workload: Workload,
        tensor_device: str | None = None,
        *,
        is_timed: bool = False,
    ) -> None:
        with traps_named(load_trainer(config.trainer), workload.model, lambda: config.batch_size):
            self.trainer = build_trainer(config, workload, tensor_device)
        self.tokens_per_batch, self.changed = workload.tokens_per_batch, workload.changed
        self.num_samples: list[int] = []
        self._batches = _without_end(workload.batches)
        self._of_rank(config.seed)
        if config.poisson_sampling:
            self._batches = sampled(self._batches, batch_sizes(config, is_timed=is_timed))
        self._batch_size, self._accumulation_steps = config.batch_size, config.accumulation_steps
        self._poisson_sampling = config.poisson_sampling
        self._process = os.getpid()

    def _of_rank(self, seed: int) -> None:
        """Deal out to ranks the batches that one process would take, and draw other noise on each."""
        parallel = self.trainer.parallel
        self._batches = islice(self._batches, parallel.rank, None, parallel.world_size)
        if parallel.rank:
            torch.manual_seed(seed + parallel.rank)

    def run(self, num_steps: int, observer: Observer) -> None:
        """Do `num_steps` training steps under the observer.

        Raises ValueError if the batches end too early, and WorkloadError if the model, its loss or a batch is
        known to be at fault.
        """
        try:
            with traps_named(type(self.trainer), self.model, self._batch_size_now):
                self.trainer.run_profiling(self._take(num_steps * self._accumulation_steps), observer)
        finally:
            end_if_forked(self._process)

    def _take(self, num_batches: int) -> Iterator[Any]:
        for batch in islice(self._batches, num_batches):
            end_if_forked(self._process)
            if self._poisson_sampling:
                self.num_samples.append(num_samples(batch))
            yield batch

    def _batch_size_now(self) -> int:
        return self.num_samples[-1] if self.num_samples else self._batch_size

    @property
    def model(self) -> nn.Module:
        """The model, as the workload made it."""
        return self.trainer.model

    def held_tensors(self) -> dict[str, list[tuple[str, Tensor]]]:
        """What of the tensors that the trainer holds now lies on this rank, with names, by category."""
        return {category: all_local(held) for category, held in self.trainer.held_tensors().items()}

    def drop_gradients(self) -> None:
        """Let go of everything that only the next step would free."""
        self.trainer.drop_gradients()

    @property
    def norm_costs(self) -> dict[str, NormCost]:
        """The form of each weight's norm, by parameter, where the trainer chooses one."""
        return self.trainer.norm_costs()

    @property
    def savings(self) -> tuple[str, ...]:
        """The savings that its loop leaves unmade."""
        return self.trainer.savings

    def save(self, savings: Iterable[str]) -> None:
        """Make these savings, and no others, from the next step on."""
        self.trainer.save(savings)


def _without_end(batches: Iterable[Any]) -> Iterator[Any]:
    yield from map(checked_batch, batches)  # keeps no reference to a batch while the next one is made
    raise ValueError("the workload's batches ended: they must go on without end")


def end_if_forked(process: int) -> None:
    """End this process if it is not the one given, but a copy of it that a workload forked and did not end.

    It would measure the same and write into the same folder.
    """
    if os.getpid() != process:
        os._exit(0)


def run_experiment(
    config: ExperimentConfig, folder: RunFolder, say: Callable[[str], None], ranks: Ranks | None = None
) -> Record:
    """Run the configured passes in order, saving the record after each. With several ranks the folder is this
    rank's.

    Raises PassFailed when a pass fails; passes after it are not tried. The record then has the figures of
    the passes before.
    """
    ranks = ranks or Ranks(config, place_in(config))
    # An estimate records the machine that made it, not the one that it is for.
    device = "cpu" if config.is_estimate else config.device
    record = Record(to_flat(config), describe_environment(device, ranks.here))
    process = os.getpid()

    def build(*, is_timed: bool = False) -> ExperimentTraining:
        training = ExperimentTraining(config, build_workload(config), is_timed=is_timed)
        end_if_forked(process)
        _count(record, config, training)
        return training

    subject = Subject(config, folder, record, build)
    told = ToldByRanks(ranks)
    for name in config.pass_names:
        gc.collect()  # what the previous pass left
        if config.device == "cuda":
            torch.cuda.empty_cache()
        outcome = record.passes[name] = PassOutcome("running")
        folder.write_record(record)
        say(f"{name} pass")
        started = time.perf_counter()
        try:
            with _group(name, config, ranks):
                PASSES[name](subject)
            told.after(name, record)
        except BaseException as error:
            outcome.status, outcome.reason = "failed", describe_error(error)
            raise PassFailed(name) from error
        else:
            outcome.status = "finished"
        finally:
            end_if_forked(process)
            outcome.seconds = time.perf_counter() - started
            record.ended_at = time.time()
            folder.write_record(record)
    ranks.leave()
    return record


def _group(name: str, config: ExperimentConfig, ranks: Ranks) -> AbstractContextManager[None]:
    """The process group of a pass."""
    if name == ALONE:
        return ranks.in_turn()
    if name in ("memory", "ledger") and config.device == "cpu":
        # gloo frees memory in threads of its own, which the profiler does not see, and copies what it
        # scatters, which NCCL does not.
        return ranks.alone()
    return ranks.together()


def run_counted_step(config: ExperimentConfig, folder: RunFolder, say: Callable[[str], None]) -> None:
    """Do the part of the counters pass that runs inside the profiled process."""

    def build(*, is_timed: bool = False) -> ExperimentTraining:
        return ExperimentTraining(config, build_workload(config), is_timed=is_timed)

    counters.run(Subject(config, folder, Record(to_flat(config), {}), build))
    say("the counted step is done")


def _estimate(subject: Subject) -> None:
    config = subject.config

    def build(tensor_device: str) -> ExperimentTraining:
        how = dataclasses.replace(config.estimating, target="none")  # a GPU's name, and tensors on the CPU
        workload = build_workload(dataclasses.replace(config, device=tensor_device, how=how))
        training = ExperimentTraining(config, workload, tensor_device)
        _count(subject.record, config, training)
        return training

    estimate.run(subject, build)


def _count(record: Record, config: ExperimentConfig, training: ExperimentTraining) -> None:
    """Put what only the built workload shows into the record: sizes, and traps that raise no error."""
    record.num_parameters = sum(p.numel() for p in training.trainer.model.parameters())
    record.parameters = record.parameters or parameter_groups(training.model, config)
    record.changed = list(training.changed)
    batches = config.accumulation_steps * config.world_size
    record.samples_per_step = config.batch_size * batches
    if training.tokens_per_batch is not None:
        record.tokens_per_step = training.tokens_per_batch * batches
    record.warnings += [w for w in training.trainer.warnings() if w not in record.warnings]


PASSES: dict[str, Callable[[Subject], None]] = {
    CLEAN: clean.run,
    ALONE: alone.run,
    "pace": pace.run,
    "memory": memory.run,
    "ledger": ledger.run,
    "trace": trace.run,
    "ceilings": ceilings.run,
    "gradient_check": gradient_check.run,
    "verify": verify.run,
    ESTIMATE: _estimate,
}
