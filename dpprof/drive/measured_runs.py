"""Finished runs that tell how long a plan's steps take: those named, else those in runs_dir and in MLflow.

Each is named by its sweep and its run, `SWEEP/RUN`.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from dpprof.config.experiment import ExperimentConfig
from dpprof.config.training import TrainingConfig
from dpprof.errors import DpprofError, TrackingError
from dpprof.figures.capacity import device_of
from dpprof.figures.results import FINISHED, Result, read_result
from dpprof.record.folder import SweepFolder
from dpprof.record.processor import processor
from dpprof.settings import fields, refuse
from dpprof.vocabulary.parallel import DDP, NONE

# What two experiments may differ in, if the steps of one tell about the other.
_FREE = ("trainer", "batch_size", "accumulation_steps", "noise_multiplier", "max_grad_norm", "seed", "lr")
_RANKS = ("parallel", "world_size")
Runs = dict[str, Result]


def measured_runs(
    named: str, experiments: Mapping[str, ExperimentConfig], own: SweepFolder, warn: Callable[[str], None]
) -> Runs:
    """Finished runs on the plan's device, of other models too, by name: those `named`, else those beside the
    plan's folder, and in MLflow those of its workload.

    A plan for a GPU by name takes runs on that GPU alone, one for the CPU those on this machine's processor,
    or those named. Raises ConfigError if those named do not exist, or tell nothing.
    """
    config = next(iter(experiments.values()))
    with TemporaryDirectory(prefix="dpprof-") as into:
        if named:
            found = _on_its_device(_named(named, Path(into), warn), config)
            if not any(tells(result, config) for result in found.values()):
                raise refuse("measured", named, _wanted(config))
            return found
        beside = [_in(SweepFolder(folder)) for folder in sorted(own.path.parent.glob("*"))]
        found = {name: result for runs in beside for name, result in runs.items()}
        here = [result.record for result in found.values()]
        stored = _in_store(config, Path(into), warn)
        found |= {name: result for name, result in stored.items() if result.record not in here}
        return {name: one for name, one in _on_its_device(found, config).items() if _is_ours(one)}


def _on_its_device(runs: Runs, config: ExperimentConfig) -> Runs:
    return {name: result for name, result in runs.items() if _is_on_its_device(result, config)}


def _is_ours(result: Result) -> bool:
    """Whether it was measured on a GPU, or on a processor like this machine's."""
    environment = result.record.environment if result.record is not None else {}
    return result.config.device != "cpu" or environment.get("cpu") == processor()["cpu"]


def _wanted(config: ExperimentConfig) -> str:
    """What runs tell of a plan, in words."""
    device = device_of(config)
    if config.device == "cpu":
        place = "the CPU"
    elif device is None:
        return "none without a target: a plan for a GPU of which only the memory is given has no times"
    else:
        place = f"{config.estimating.target} ({device.source})"
    return (
        f"finished runs on {place} of {config.model_name} at sequence length {config.seq_len} in "
        f"{config.precision}, with the same optimizer, loop and data, and accumulation_steps 1"
    )


def _in(sweep: SweepFolder) -> Runs:
    found = {}
    for folder in sweep.runs():
        with suppress(DpprofError):  # of another version
            if folder.record.exists() and not folder.read_config().is_estimate:
                found[f"{sweep.path.name}/{folder.name}"] = read_result(folder)
    return found


def _named(name: str, into: Path, warn: Callable[[str], None]) -> Runs:
    from dpprof.drive.sources import read_comparison

    _, folders = read_comparison([name], into, warn, "measured")
    return {f"{source}/{run}": read_result(folder, run) for (source, run), folder in folders.items()}


def _in_store(config: ExperimentConfig, into: Path, warn: Callable[[str], None]) -> Runs:
    from dpprof.tracking.fetch import fetch_finished

    params = {name: getattr(config, name) for name in ("workload", "seq_len", "precision", "device", "loop")}
    try:
        folders = fetch_finished(params, into)
    except TrackingError as error:
        warn(f"measured runs are not looked for in MLflow: {error}")
        return {}
    found = {}
    for name, folder in folders.items():
        with suppress(DpprofError):  # of another version
            found[name] = read_result(folder, name.rpartition("/")[2])
    return found


def _is_on_its_device(result: Result, config: ExperimentConfig) -> bool:
    """Whether it finished, on the kind of device that a plan is for."""
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
    """Whether a run on the plan's device trained what the plan is about, one physical batch in each step: on
    as many ranks, or on one where each rank of the plan does what one alone does.
    """
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
    # A rank of ddp holds and computes what one alone does, but for communication. A shard is another step.
    return other.parallel == NONE and config.parallel == DDP
