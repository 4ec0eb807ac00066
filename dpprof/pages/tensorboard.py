"""Headline figures as TensorBoard scalars and hparams, and the figures of each step.

Traces are better viewed in Perfetto (https://ui.perfetto.dev).
"""

from pathlib import Path

from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import hparams

from dpprof.record.figures.names import NEEDED, PEAK, PREDICTED, SAMPLES, STEP, series
from dpprof.record.figures.results import Result
from dpprof.vocabulary.trainers import trainer_info

# Estimates have the first and the last two.
_HEADLINE = (PEAK, STEP, SAMPLES, NEEDED, PREDICTED)


def write_scalars(result: Result) -> list[Path]:
    """Replace the folder's event file: series by step, headline figures once. Returns the files.

    Writes nothing if the clean pass did not finish.
    """
    record, directory = result.record, result.folder.tensorboard
    if record is None or result.figures is None:
        return []
    for path in _event_files(directory):
        path.unlink()
    config = result.config
    settings: dict[str, object] = {name: getattr(config, name) for name in ("batch_size", "seq_len")}
    settings |= {"trainer": trainer_info(config.trainer).short_name, "model": config.model_title}
    headline = {name: result.metrics[name] for name in _HEADLINE if name in result.metrics}
    with SummaryWriter(str(directory)) as writer:
        for part in hparams(settings, headline):
            writer.file_writer.add_summary(part)
        for name, value in headline.items():
            writer.add_scalar(name, value, 0)
        for name, values in series(record).items():
            for step, value in enumerate(values):
                writer.add_scalar(f"{name}_by_step", value, step)
    return _event_files(directory)


def _event_files(directory: Path) -> list[Path]:
    return sorted(directory.glob("events.out.tfevents.*"))
