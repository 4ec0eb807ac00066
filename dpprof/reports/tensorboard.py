"""Latency, memory and throughput as TensorBoard scalars and hparams, so that runs compare there."""

from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import hparams

from dpprof.config.training import SIZE_FIELDS
from dpprof.figures.names import metrics, named, series
from dpprof.figures.results import Result

_HPARAMS = (
    *("trainer", "workload", "model_size", *SIZE_FIELDS),
    *("batch_size", "seq_len", "precision", "device", "accumulation_steps"),
)
_GROUPS = ("latency", "memory", "throughput")


def write_scalars(result: Result) -> None:
    """Write an event file into the run's TensorBoard directory: series by step, other figures once."""
    record, of_run = result.record, result.figures
    if record is None or of_run is None:
        return
    figures = metrics(metric for metric in named(of_run) if metric.group in _GROUPS)
    parts = hparams({name: record.config[name] for name in _HPARAMS}, dict.fromkeys(figures, 0.0))
    with SummaryWriter(str(result.folder.tensorboard)) as writer:
        for part in parts:
            writer.file_writer.add_summary(part)
        for name, value in figures.items():
            writer.add_scalar(name, value, 0)
        for name, values in series(record).items():
            for step, value in enumerate(values):
                writer.add_scalar(f"{name}_by_step", value, step)
