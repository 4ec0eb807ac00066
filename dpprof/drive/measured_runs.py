"""Finds finished runs (`SWEEP/RUN`) with a plan's step times: those named, else in runs_dir and MLflow."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from dpprof.config.experiment import ExperimentConfig
from dpprof.config.training import TrainingConfig
from dpprof.drive.sources import read_comparison
from dpprof.errors import DpprofError, TrackingError, refuse
from dpprof.process import processor
from dpprof.record.figures.capacity import device_of
from dpprof.record.figures.results import FINISHED, Result, read_result
from dpprof.record.folder import RunFolder, SweepFolder
from dpprof.tracking.fetch import fetch_finished
from dpprof.vocabulary.parallel import DDP, NONE
from dpprof.vocabulary.settings import fields

# Settings in which two experiments may differ while one's steps still tell about the other's.
_FREE = ("trainer", "batch_size", "accumulation_steps", "noise_multiplier", "max_grad_norm", "seed", "lr")
_RANKS = ("parallel", "world_size")
_WANTED = (
    "finished runs on the plan's device (a plan without a target has none) with the same model, seq_len, "
    "precision, optimizer, loop and data, and accumulation_steps 1"
)
Runs = dict[str, Result]


def measured_runs(
    named: str, experiments: Mapping[str, ExperimentConfig], own: SweepFolder, warn: Callable[[str], None]
) -> Runs:
    """Find finished runs on the plan's device, also of other models, by name.

    Either those `named` ("none": no run), or those beside the plan's folder and in MLflow; a plan for the CPU
    then takes only runs on processors like this machine's. Raises ConfigError if those named do not exist or
    tell nothing.
    """
    if named == "none":
        return {}
    config = next(iter(experiments.values()))
    with TemporaryDirectory(prefix="dpprof-") as into:
        if named:
            _, folders = read_comparison([named], Path(into), warn, "measured")
            found = {f"{sweep}/{run}": read_result(folder, run) for (sweep, run), folder in folders.items()}
        else:
            sweeps = map(SweepFolder, sorted(own.path.parent.glob("*")))
            runs = {f"{sweep.path.name}/{run.name}": run for sweep in sweeps for run in sweep.runs()}
            found = _readable(runs)
            here = [result.record for result in found.values()]
            stored = _readable(_in_store(config, Path(into), warn)).items()
            found |= {name: result for name, result in stored if result.record not in here}
            found = {name: result for name, result in found.items() if _is_ours(result)}
    found = {name: result for name, result in found.items() if _is_on_its_device(result, config)}
    if named and not any(tells(result, config) for result in found.values()):
        raise refuse("measured", named, _WANTED)
    return found


def _is_ours(result: Result) -> bool:
    """True if measured on a GPU, or on a CPU of this machine's model."""
    environment = result.record.environment if result.record is not None else {}
    return result.config.device != "cpu" or environment.get("cpu") == processor()["cpu"]


def _readable(folders: Mapping[str, RunFolder]) -> Runs:
    """Read the measured runs, without those of other versions."""
    found = {}
    for name, folder in folders.items():
        with suppress(DpprofError):
            if folder.record.exists() and not folder.read_config().is_estimate:
                found[name] = read_result(folder, name.rpartition("/")[2])
    return found


def _in_store(config: ExperimentConfig, into: Path, warn: Callable[[str], None]) -> dict[str, RunFolder]:
    params = {name: getattr(config, name) for name in ("workload", "seq_len", "precision", "device", "loop")}
    try:
        return fetch_finished(params, into)
    except TrackingError as error:
        warn(f"measured runs are not looked for in MLflow: {error}")
        return {}


def _is_on_its_device(result: Result, config: ExperimentConfig) -> bool:
    record = result.record
    if result.status != FINISHED or result.config.is_estimate or record is None or not record.step_s:
        return False
    if result.config.device != config.device:
        return False
    if config.device == "cpu":
        return True
    device = device_of(config)
    return device is not None and device.is_named(record.environment.get("gpu", ""))


def tells(result: Result, config: ExperimentConfig) -> bool:
    """Tell if a run trained what the plan is about, on comparable ranks, with one batch in each step."""
    other = result.config
    if other.poisson_sampling or other.accumulation_steps != 1:
        return False
    if other.trainer == config.trainer and other.options != config.options:
        return False
    own = {name: getattr(config, name) for name in fields(TrainingConfig) if name not in (*_FREE, *_RANKS)}
    if any(getattr(other, name) != value for name, value in own.items()):
        return False
    if all(getattr(other, name) == getattr(config, name) for name in _RANKS):
        return True
    # A DDP rank holds and computes what a single process does, except for communication. A shard differs.
    return other.parallel == NONE and config.parallel == DDP
