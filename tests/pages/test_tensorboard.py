"""The event files of runs, as TensorBoard reads them."""

import dataclasses
from pathlib import Path
from typing import Any

import example_estimates
import example_ledger
from tensorboard.backend.event_processing.event_file_loader import (  # type: ignore[import-untyped]
    EventFileLoader,
)
from tensorboard.plugins.hparams import plugin_data_pb2  # type: ignore[import-untyped]

from dpprof.pages.reports.tensorboard import write_scalars
from dpprof.record.figures.names import PEAK, SAMPLES, STEP
from dpprof.record.figures.results import Result
from dpprof.record.folder import RunFolder


def values_of(result: Result, at: Path) -> list[Any]:
    """The values of the run's event file."""
    at.mkdir()
    folder = RunFolder(at)
    folder.tensorboard.mkdir()
    (file,) = write_scalars(dataclasses.replace(result, folder=folder))
    return [value for event in EventFileLoader(str(file)).Load() for value in event.summary.value]


def hparams_of(values: list[Any], tag: str) -> Any:
    (value,) = (value for value in values if value.tag == f"_hparams_/{tag}")
    return plugin_data_pb2.HParamsPluginData.FromString(value.metadata.plugin_data.content)


def test_the_table_of_hparams_has_a_few_columns(tmp_path: Path) -> None:
    result = example_ledger.result(example_ledger.record(samples_per_step=2))
    config = dataclasses.replace(result.config, num_layers=7)
    values = values_of(dataclasses.replace(result, config=config), tmp_path / "run")
    given = hparams_of(values, "session_start_info").session_start_info.hparams
    assert {name: value.string_value or value.number_value for name, value in given.items()} == {
        "trainer": "flat",
        "model": "tiny-layers7",
        "batch_size": 2,
        "seq_len": 16,
    }
    metrics = hparams_of(values, "experiment").experiment.metric_infos
    assert [metric.name.tag for metric in metrics] == [PEAK, STEP, SAMPLES]


def scalars(values: list[Any]) -> list[tuple[str, float]]:
    return [
        (value.tag, round(value.tensor.float_val[0], 3)) for value in values if "_hparams_" not in value.tag
    ]


def test_scalars_are_the_headline_figures_and_those_of_each_step(tmp_path: Path) -> None:
    found = scalars(
        values_of(example_ledger.result(example_ledger.record(samples_per_step=2)), tmp_path / "run")
    )
    assert found[:3] == [(PEAK, 30.3), (STEP, 200.0), (SAMPLES, 10.0)]
    assert found[3:] == [("latency/step_ms_by_step", 200.0)] * 3


def test_an_estimate_has_what_it_needs_and_its_time(tmp_path: Path) -> None:
    found = dict(scalars(values_of(example_estimates.estimate(), tmp_path / "run")))
    assert found == {PEAK: 132.0, "memory/needed_mib": 644.0, "predicted/step_ms": 2.0}
