"""A run folder with figures, as an experiment leaves it."""

from pathlib import Path

from example_results import result

from dpprof.record.figures.results import Result, read_result
from dpprof.record.folder import RunFolder


def laid_out(sweep: Path, trainer: str = "StandardTrainer") -> Result:
    """A finished run in the folder of a sweep."""
    made = result(trainer, step_s=0.5, peak_mib=3.0, batch_size=2, seq_len=16, passes="clean")
    assert made.record is not None
    folder = RunFolder(sweep / made.config.run_name)
    folder.create(made.config)
    folder.write_record(made.record)
    return read_result(folder)
