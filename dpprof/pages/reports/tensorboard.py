"""Headline figures as TensorBoard scalars and hparams, and the figures of each step.

Written by TensorBoard's own package: `torch.utils.tensorboard` would import torch into the driving process.
Traces are better viewed in Perfetto (https://ui.perfetto.dev).
"""

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event  # type: ignore[import-untyped]
from tensorboard.plugins.hparams import api_pb2, summary_v2  # type: ignore[import-untyped]
from tensorboard.plugins.scalar.summary_v2 import scalar_pb  # type: ignore[import-untyped]
from tensorboard.summary.writer.event_file_writer import EventFileWriter  # type: ignore[import-untyped]

from dpprof.pages.report import Report
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
    with closing(EventFileWriter(str(directory))) as writer:
        for step, part in _parts(settings, headline, series(record)):
            writer.add_event(Event(wall_time=time.time(), step=step, summary=part))
    return _event_files(directory)


def _parts(
    settings: dict[str, object], headline: dict[str, float], by_step: dict[str, list[float]]
) -> Iterator[tuple[int, Any]]:
    """Yield steps and summaries: the experiment, the settings of its run, and all figures."""
    columns = [summary_v2.HParam(name, _Any(value)) for name, value in settings.items()]
    yield 0, summary_v2.hparams_config_pb(columns, [summary_v2.Metric(name) for name in headline])
    yield 0, summary_v2.hparams_pb(settings)
    for name, value in headline.items():
        yield 0, scalar_pb(name, value)
    for name, values in by_step.items():
        for step, value in enumerate(values):
            yield step, scalar_pb(f"{name}_by_step", value)


class _Any(summary_v2.Domain):
    """Every value of the type of one: other runs have others."""

    def __init__(self, value: object) -> None:
        self._type = type(value)

    @property
    def dtype(self) -> type:
        """The type."""
        return self._type

    def sample_uniform(self, rng: Any = None) -> Any:
        """Raise NotImplementedError: TensorBoard's interface asks for it, and nothing here draws values."""
        raise NotImplementedError

    def update_hparam_info(self, hparam_info: Any) -> None:
        """Set the type."""
        is_text = self._type is str
        hparam_info.type = api_pb2.DATA_TYPE_STRING if is_text else api_pb2.DATA_TYPE_FLOAT64


def _event_files(directory: Path) -> list[Path]:
    return sorted(directory.glob("events.out.tfevents.*"))


REPORTS = (Report("tensorboard", version=2, write=write_scalars),)
