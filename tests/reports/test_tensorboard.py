from pathlib import Path

import example_ledger
from tensorboard.backend.event_processing.event_file_loader import (  # type: ignore[import-untyped]
    EventFileLoader,
)
from tensorboard.plugins.hparams import plugin_data_pb2  # type: ignore[import-untyped]

from dpprof.figures.results import read_result
from dpprof.reports.tensorboard import write_scalars


def test_the_sizes_stand_beside_the_model_size_that_they_may_differ_from(tmp_path: Path) -> None:
    record = example_ledger.record()
    record.config["num_layers"] = 7
    folder = example_ledger.folder(tmp_path / "run", record, None)
    (file,) = write_scalars(read_result(folder))
    values = [value for event in EventFileLoader(str(file)).Load() for value in event.summary.value]
    (start,) = (value for value in values if value.tag == "_hparams_/session_start_info")
    data = plugin_data_pb2.HParamsPluginData.FromString(start.metadata.plugin_data.content)
    given = data.session_start_info.hparams
    assert (given["model_size"].string_value, given["num_layers"].number_value) == ("tiny", 7)
