"""Latency, memory and throughput as TensorBoard scalars and hparams, so that runs compare there."""

from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import hparams

from dpprof.config.training import SIZE_FIELDS
from dpprof.figures.metrics import metrics, series
from dpprof.record.folder import RunFolder
from dpprof.record.record import Record

_HPARAMS = (
    *("trainer", "workload", "model_size", *SIZE_FIELDS),
    *("batch_size", "seq_len", "precision", "device", "accumulation_steps"),
)
_GROUPS = ("latency/", "memory/", "throughput/")


def write_scalars(folder: RunFolder, record: Record) -> None:
    """Write an event file into the folder's TensorBoard directory: series by step, other figures once."""
    figures = {name: value for name, value in metrics(record).items() if name.startswith(_GROUPS)}
    parts = hparams({name: record.config[name] for name in _HPARAMS}, dict.fromkeys(figures, 0.0))
    with SummaryWriter(str(folder.tensorboard)) as writer:
        for part in parts:
            writer.file_writer.add_summary(part)
        for name, value in figures.items():
            writer.add_scalar(name, value, 0)
        for name, values in series(record).items():
            for step, value in enumerate(values):
                writer.add_scalar(f"{name}_by_step", value, step)
