"""Latency, memory and throughput as TensorBoard scalars and hparams, so that runs compare there."""

from pathlib import Path

from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import hparams

from dpprof.config.training import SIZE_FIELDS
from dpprof.figures.names import metrics, series
from dpprof.figures.results import Result

_HPARAMS = (
    *("trainer", "workload", "model_size", *SIZE_FIELDS),
    *("batch_size", "seq_len", "precision", "device", "accumulation_steps"),
)
_GROUPS = ("latency", "memory", "throughput")


def write_scalars(result: Result) -> list[Path]:
    """Write an event file into the folder's TensorBoard directory in place of an earlier one: series by step,
    other figures once. Nothing where the clean pass did not finish. Returns the files.
    """
    record, directory = result.record, result.folder.tensorboard
    if record is None or result.figures is None:
        return []
    for path in _event_files(directory):
        path.unlink()
    figures = metrics(metric for metric in result.named if metric.group in _GROUPS)
    parts = hparams({name: record.config[name] for name in _HPARAMS}, dict.fromkeys(figures, 0.0))
    with SummaryWriter(str(directory)) as writer:
        for part in parts:
            writer.file_writer.add_summary(part)
        for name, value in figures.items():
            writer.add_scalar(name, value, 0)
        for name, values in series(record).items():
            for step, value in enumerate(values):
                writer.add_scalar(f"{name}_by_step", value, step)
    return _event_files(directory)


def _event_files(directory: Path) -> list[Path]:
    return sorted(directory.glob("events.out.tfevents.*"))
