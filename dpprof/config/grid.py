"""Experiments of a sweep by name and in order, and those of a check."""

import dataclasses
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dpprof.config.budget import BudgetConfig
from dpprof.config.entry_points import AXES, CheckConfig, SweepConfig
from dpprof.config.estimating import EstimatingConfig
from dpprof.config.experiment import ExperimentConfig
from dpprof.config.flat import How, experiment_settings, parse_for_trainers, parse_trainers, with_own_options
from dpprof.config.measuring import MeasuringConfig
from dpprof.config.named_trainers import load_named
from dpprof.config.options import COMMANDS
from dpprof.config.training import SIZE_FIELDS, TrainingConfig, resolve_device
from dpprof.errors import ConfigError, DpprofError, refuse, shortened, shown
from dpprof.json_files import read_json
from dpprof.vocabulary.settings import fields, parse, take
from dpprof.vocabulary.trainers import trainer_info
from dpprof.vocabulary.workloads import BUILT_IN_WORKLOAD

_DEFAULTS = {
    "cuda": {"model_sizes": "1b", "batch_sizes": "4,8", "seq_lens": "512,1024"},
    "cpu": {"model_sizes": "mini", "batch_sizes": "4,8", "seq_lens": "32"},
}
_FORESEEN_ON = "H100"


@dataclass(frozen=True)
class Grid:
    """A sweep's resolved experiments by name, and estimates of a larger model for its verdict."""

    config: SweepConfig
    experiments: dict[str, ExperimentConfig]
    foreseen: dict[str, ExperimentConfig] = field(default_factory=dict)


def build_grid(
    values: Mapping[str, object],
    how: How = MeasuringConfig,
    *,
    cuda_available: Callable[[], bool],
    look_for: Callable[[str], None] = lambda workload: None,
) -> Grid:
    """Build a grid from raw options (of `SweepConfig` and of an experiment outside the axes).

    A JSON file may serve measuring and estimating: settings of the other way are ignored. `cuda_available`
    takes seconds and is only called after the options are parsed and `look_for` has accepted the workload.
    Raises ConfigError for a bad value, an unreadable JSON file, or an option unknown to a sweep.
    """
    path = parse(fields(SweepConfig)["config"], values.get("config", ""))
    if path:
        values = _with_file(path, values)
    sweep, rest = take(SweepConfig, values)
    for name in rest:
        if name in AXES.values():
            raise ConfigError(f"{name}: a sweep varies it, use its plural")
    trainers = parse_trainers(sweep.trainers)
    base = parse_for_trainers(rest, how, trainers)
    look_for(base.workload)
    has_cuda = base.is_estimate or cuda_available()
    device = resolve_device(base.device, cuda_available=has_cuda)
    axes = {**_axes(sweep, device), "trainer": trainers}
    if base.has_own_sizes and sweep.model_sizes != "auto":
        raise refuse("model_sizes", sweep.model_sizes, f"auto with {base.workload}, which names its model")
    experiments: dict[str, ExperimentConfig] = {}
    for point in itertools.product(*axes.values()):
        cell = dict(zip(axes, point, strict=True))
        config = with_own_options(dataclasses.replace(base, **cell)).resolve(cuda_available=has_cuda)
        name = config.run_name
        if config.workload != BUILT_IN_WORKLOAD and len(axes["model_size"]) > 1:
            name += f"_{config.model_size}"
        if len(axes["precision"]) > 1:
            name += f"_{config.precision}"
        experiments[name] = config
    is_default = all(getattr(sweep, axis) == "auto" for axis in _DEFAULTS[device])
    is_small = device == "cpu" and not base.is_estimate and base.workload == BUILT_IN_WORKLOAD
    has_own_sizes = any(getattr(base, name) for name in SIZE_FIELDS)
    foreseen = {}
    if is_default and is_small and not has_own_sizes:
        large = dataclasses.replace(base, precision=axes["precision"][0], budget=BudgetConfig())
        foreseen = _foreseen(large, trainers)
    # The whole grid again, so that slow phases do not hit a single cell; round 1 keeps its names.
    rounds = itertools.product(range(1, sweep.repeats + 1), experiments.items())
    repeated = {name if i == 1 else f"{name}_rep{i}": config for i, (name, config) in rounds}
    return Grid(sweep, repeated, foreseen)


def _foreseen(base: ExperimentConfig, trainers: list[str]) -> dict[str, ExperimentConfig]:
    """Return estimates of the GPU default's smallest cell with every DP trainer; none with fewer than two."""
    trainers = [trainer for trainer in trainers if trainer_info(trainer).is_private]
    if len(trainers) < 2:
        return {}
    smallest = {
        AXES[axis]: parse(fields(TrainingConfig)[AXES[axis]], text.split(",")[0])
        for axis, text in _DEFAULTS["cuda"].items()
    }
    how = EstimatingConfig(target=_FORESEEN_ON, savings=False)
    found = {}
    for trainer in trainers:
        config = dataclasses.replace(base, trainer=trainer, device="cuda", how=how, **smallest)
        config = with_own_options(config).resolve(cuda_available=True)
        found[config.run_name] = config
    return found


def _axes(sweep: SweepConfig, device: str) -> dict[str, list[Any]]:
    """Parse the values of each axis but the trainers by the rules of the setting that it varies."""
    axes = {}
    for axis, name in AXES.items():
        if axis == "trainers":
            continue
        text = getattr(sweep, axis)
        if text == "auto":
            text = _DEFAULTS[device].get(axis, text)
        field = fields(TrainingConfig)[name]
        try:
            parsed = [parse(field, item) for item in text.split(",")]
        except ConfigError as error:
            raise ConfigError(f"{axis}: {error}") from None
        axes[name] = list(dict.fromkeys(parsed))
    return axes


def _with_file(path: str, given: Mapping[str, object]) -> dict[str, object]:
    """Return a file's options with those given instead."""
    try:
        data = read_json(Path(path))
    except DpprofError as error:
        raise ConfigError(f"config: {shortened(str(error))}") from None
    if not isinstance(data, dict):
        raise refuse("config", path, "a JSON object of option names and values")
    known = fields(SweepConfig) | experiment_settings()
    for name in data:
        if name not in known:
            raise refuse("config", path, f"an object of options only; {shown(name)} is none")
    merged: dict[str, object] = {
        name: ",".join(map(str, value)) if isinstance(value, list) else value for name, value in data.items()
    }
    for name in ("trainer", "trainers"):
        load_named(merged.get(name, ""))
    return merged | dict(given)


def experiments_to_check(values: Mapping[str, object], command: str = "check") -> list[ExperimentConfig]:
    """Return one unresolved experiment per trainer from a command's raw options. Raises ConfigError."""
    check, rest = take(CheckConfig, {**COMMANDS[command].defaults, **values})
    trainers = parse_trainers(check.trainers)
    base = parse_for_trainers(rest, MeasuringConfig, trainers)
    if base.batch_size < 2:
        words = "2 or more: with one sample any first dimension of 1 looks right"
        raise refuse("batch_size", base.batch_size, words)
    base.resolve(cuda_available=True)  # refuses settings that no machine can use
    return [with_own_options(dataclasses.replace(base, trainer=trainer)) for trainer in trainers]


def experiments_to_verify(
    values: Mapping[str, object], *, cuda_available: bool, passes: str = "clean,verify"
) -> dict[str, ExperimentConfig]:
    """Return one resolved experiment per trainer by name, verified after a step. Raises ConfigError."""
    how = MeasuringConfig(warmup_steps=1, measured_steps=1, passes=passes)
    unresolved = [dataclasses.replace(each, how=how) for each in experiments_to_check(values, "verify")]
    resolved = [each.resolve(cuda_available=cuda_available) for each in unresolved]
    return {config.run_name: config for config in resolved}
