"""Runs the passes of one experiment. The only place where trainers and passes meet."""

import dataclasses
import gc
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from dpprof import estimate
from dpprof.config import ESTIMATE, ExperimentConfig
from dpprof.environment import describe_environment
from dpprof.observe import Observer, Subject
from dpprof.passes import ceilings, clean, counters, ledger, memory, pace, trace
from dpprof.paths import RunFolder
from dpprof.record import GradientCheck, PassOutcome, Record
from dpprof.trainers import TRAINER_CLASSES
from dpprof.trainers.base import TrainerBase
from dpprof.trainers.reference import clipped_mean, global_norm, naive_per_sample_gradients, relative_error
from dpprof.workloads.workload import Workload, build_workload

_OPTIMIZERS: dict[str, type[torch.optim.Optimizer]] = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}


class PassFailed(Exception):
    """A pass raised; the record says which. The cause is the original error."""


class ExperimentTraining:
    """A trainer with an endless supply of batches."""

    def __init__(self, config: ExperimentConfig, workload: Workload, place: str | None = None) -> None:
        self.trainer = build_trainer(config, workload, place)
        self.tokens_per_batch = workload.tokens_per_batch
        self._batches: Iterator[Any] = iter(workload.batches)
        self._accumulation_steps = config.accumulation_steps

    def run(self, num_steps: int, observer: Observer) -> None:
        """Do `num_steps` training steps under the observer. Raises ValueError if the batches end before."""
        self.trainer.run_profiling(self._take(num_steps * self._accumulation_steps), observer)

    def _take(self, num_batches: int) -> Iterator[Any]:
        for _ in range(num_batches):
            try:
                batch = next(self._batches)
            except StopIteration:
                raise ValueError("the workload's batches ended: they must go on without end") from None
            yield batch

    @property
    def model(self) -> nn.Module:
        """The model, as the workload made it."""
        return self.trainer.model

    def held_tensors(self) -> dict[str, list[tuple[str, Tensor]]]:
        """The tensors that the trainer holds now, with names, by category."""
        return self.trainer.held_tensors()

    def drop_gradients(self) -> None:
        """Let go of everything that only the next step's `zero_grad` would free."""
        self.trainer.drop_gradients()


def build_trainer(config: ExperimentConfig, workload: Workload, place: str | None = None) -> TrainerBase:
    """The configured trainer over a workload's model; `place` is where tensors are, if not on its device."""
    # As torch itself chooses by the device of the parameters, which may be elsewhere for an estimate.
    params: dict[str, Any] = {"lr": config.lr, "foreach": config.device == "cuda"}
    if config.optimizer == "sgd":
        params["momentum"] = config.momentum
    return TRAINER_CLASSES[config.trainer](
        workload.model,
        _OPTIMIZERS[config.optimizer],
        params,
        place or config.device,
        loss=workload.loss,
        batch_size=config.batch_size,
        accumulation_steps=config.accumulation_steps,
        precision=config.precision,
        noise_multiplier=config.noise_multiplier,
        max_grad_norm=config.max_grad_norm,
    )


def run_experiment(config: ExperimentConfig, folder: RunFolder, say: Callable[[str], None]) -> Record:
    """Run the configured passes in order, saving the record after each.

    Raises PassFailed when a pass fails; passes after it are not tried. The record then has the figures of
    the passes before.
    """
    # An estimate describes the machine that made it, not the one that it is for.
    record = Record(vars(config), describe_environment("cpu" if config.is_estimate else config.device))

    def build() -> ExperimentTraining:
        training = ExperimentTraining(config, build_workload(config))
        _count(record, config, training)
        return training

    subject = Subject(config, folder, record, build)
    for name in config.pass_names:
        gc.collect()  # what the pass before left
        if config.device == "cuda":
            torch.cuda.empty_cache()
        outcome = record.passes[name] = PassOutcome("running")
        folder.write_record(record)
        say(f"{name} pass")
        started = time.perf_counter()
        try:
            PASSES[name](subject)
        except BaseException as error:
            outcome.status, outcome.reason = "failed", f"{type(error).__name__}: {error}".strip()
            raise PassFailed(name) from error
        else:
            outcome.status = "finished"
        finally:
            outcome.seconds = time.perf_counter() - started
            record.ended_at = time.time()
            folder.write_record(record)
    return record


def run_counted_step(config: ExperimentConfig, folder: RunFolder, say: Callable[[str], None]) -> None:
    """Do what the counters pass does within the profiled process; what is counted, the profiler keeps."""

    def build() -> ExperimentTraining:
        return ExperimentTraining(config, build_workload(config))

    counters.run(Subject(config, folder, Record(vars(config), {}), build))
    say("the counted step is done")


def _estimate(subject: Subject) -> None:
    config = subject.config

    def build(place: str) -> ExperimentTraining:
        workload = build_workload(dataclasses.replace(config, device=place, target="none"))
        training = ExperimentTraining(config, workload, place)
        _count(subject.record, config, training)
        return training

    estimate.run(subject, build)


def _count(record: Record, config: ExperimentConfig, training: ExperimentTraining) -> None:
    """Put the sizes that only the built workload knows into the record."""
    record.num_parameters = sum(p.numel() for p in training.trainer.model.parameters())
    record.samples_per_step = config.batch_size * config.accumulation_steps
    if training.tokens_per_batch is not None:
        record.tokens_per_step = training.tokens_per_batch * config.accumulation_steps


def check_gradient(subject: Subject) -> None:
    """Compare the trainer's clipped gradient, noise off, with a naive loop over samples."""
    subject.record.gradient_check = GradientCheck(
        relative_error_float64=gradient_error(subject.config, torch.float64),
        relative_error_float32=gradient_error(subject.config, torch.float32),
    )


def gradient_error(config: ExperimentConfig, dtype: torch.dtype) -> float:
    """Relative L2 error of one physical batch's clipped gradient, computed in `dtype`, noise off.

    Gradients are clipped to 0.9 of the samples' median norm, so that at least half of them really are
    clipped: under a norm that clips nothing every trainer would pass.
    """
    config = dataclasses.replace(config, accumulation_steps=1, precision="fp32", noise_multiplier=0.0)
    workload = build_workload(config)
    workload.model.to(config.device, dtype)
    batch = tree_map(
        lambda t: t.to(config.device, dtype if t.is_floating_point() else None) if torch.is_tensor(t) else t,
        next(iter(workload.batches)),
    )
    per_sample = naive_per_sample_gradients(workload.model, workload.loss, batch, config.batch_size)
    max_grad_norm = None
    if TRAINER_CLASSES[config.trainer].is_private:
        max_grad_norm = 0.9 * statistics.median(float(global_norm(g)) for g in per_sample)
        config = dataclasses.replace(config, max_grad_norm=max_grad_norm)
    trainer = build_trainer(config, workload)
    trainer.profile_step(batch)
    gradients = [gradient for _, gradient in trainer.held_tensors()["gradients"]]
    return relative_error(gradients, clipped_mean(per_sample, max_grad_norm))


PASSES: dict[str, Callable[[Subject], None]] = {
    "clean": clean.run,
    "pace": pace.run,
    "memory": memory.run,
    "ledger": ledger.run,
    "trace": trace.run,
    "ceilings": ceilings.run,
    "gradient_check": check_gradient,
    ESTIMATE: _estimate,
}
