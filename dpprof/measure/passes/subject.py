"""The input of a pass."""

from collections.abc import Callable
from dataclasses import dataclass

from dpprof.config.experiment import ExperimentConfig
from dpprof.measure.passes.weights import parameter_groups
from dpprof.measure.trainers.training import Training
from dpprof.record.folder import RunFolder
from dpprof.record.record import Record


@dataclass(frozen=True)
class Subject:
    """An experiment, from which a pass builds trainings, and the record that it adds its results to.

    A pass may call `times_taken` before its end: the rest of it needs no quiet machine.
    """

    config: ExperimentConfig
    folder: RunFolder
    record: Record
    times_taken: Callable[[], None] = lambda: None

    def build(self, tensor_device: str | None = None, *, is_timed: bool = False) -> Training:
        """Build a training that has done no step yet, and record its parameters, batches and warnings."""
        training = Training(self.config, tensor_device, is_timed=is_timed)
        config, record = self.config, self.record
        record.num_parameters = sum(p.numel() for p in training.model.parameters())
        record.parameters = record.parameters or parameter_groups(training.model, config)
        record.changed = list(training.changed)
        batches = config.accumulation_steps * config.world_size
        record.samples_per_step = config.batch_size * batches
        if training.tokens_per_batch is not None:
            record.tokens_per_step = training.tokens_per_batch * batches
        record.warnings += [w for w in training.warnings() if w not in record.warnings]
        record.unbounded = training.trainer.unbounded()
        return training
