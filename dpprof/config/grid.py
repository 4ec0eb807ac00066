"""The grid of a sweep: which experiments, in which order, under which names."""

import dataclasses
import itertools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dpprof.config.budget import BudgetConfig
from dpprof.config.estimating import EstimatingConfig
from dpprof.config.experiment import ExperimentConfig
from dpprof.config.flat import How, experiment_settings, parse_any_trainers, with_own_options
from dpprof.config.measuring import MeasuringConfig
from dpprof.config.own_options import refuse_untaken, training_options
from dpprof.config.sweep import AXES, SweepConfig
from dpprof.config.training import SIZE_FIELDS, TrainingConfig, resolve_device
from dpprof.errors import ConfigError
from dpprof.settings import OptionValue, fields, parse, parse_all, refuse, shown
from dpprof.vocabulary.trainers import trainer_info, trainers_named
from dpprof.vocabulary.workloads import BUILT_IN_WORKLOAD

_DEFAULTS = {
    "cuda": {"model_sizes": "1b", "batch_sizes": "4,8", "seq_lens": "512,1024"},
    "cpu": {"model_sizes": "mini", "batch_sizes": "4,8", "seq_lens": "32"},
}
_FORESEEN_ON = "H100"
_LARGEST_CONFIG = 10**6


@dataclass(frozen=True)
class Grid:
    """A sweep made concrete: resolved experiments with the name of each.

    `foreseen` are estimates of a larger model, which the default sweep on the CPU makes for its verdict.
    """

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
    """Turn raw options (of `SweepConfig` and of an experiment outside the axes) into experiments.

    A JSON file may be there for both ways, to measure and to estimate: what only the other one has is left
    out. `cuda_available` is asked once the options are read, and `look_for` has not refused the workload:
    finding out takes seconds.
    Raises ConfigError for a bad value, an unreadable JSON file, or an option unknown to a sweep.
    """
    path = parse(fields(SweepConfig)["config"], values.get("config", ""))
    if path:
        values = _merge(_read_json(path), values)
    sweep_names = fields(SweepConfig)
    sweep = parse_all(SweepConfig, {k: v for k, v in values.items() if k in sweep_names})
    rest = {k: v for k, v in values.items() if k not in sweep_names}
    for name in rest:
        if name in AXES.values():
            raise ConfigError(f"{name}: a sweep varies it, use its plural")
    base, options = parse_any_trainers(rest, how)
    look_for(base.workload)
    has_cuda = base.is_estimate or cuda_available()
    device = resolve_device(base.device, cuda_available=has_cuda)
    axes = _axes(sweep, device)
    if base.has_own_sizes and sweep.model_sizes != "auto":
        raise refuse("model_sizes", sweep.model_sizes, f"auto with {base.workload}, which names its model")
    refuse_untaken([*axes["trainer"], base.workload], training_options(), options)
    experiments: dict[str, ExperimentConfig] = {}
    for point in itertools.product(*axes.values()):
        cell = dict(zip(axes, point, strict=True))
        config = with_own_options(dataclasses.replace(base, **cell), options)
        config = config.resolve(cuda_available=has_cuda)
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
        foreseen = _foreseen(large, axes["trainer"], options)
    return Grid(sweep, _repeated(experiments, sweep.repeats), foreseen)


def _foreseen(
    base: ExperimentConfig, trainers: list[str], options: Mapping[str, OptionValue]
) -> dict[str, ExperimentConfig]:
    """Estimates for a GPU, of the smallest cell that is the default there, with every DP trainer; none with
    fewer than two, which leave nothing to choose.
    """
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
        config = with_own_options(config, options).resolve(cuda_available=True)
        found[config.run_name] = config
    return found


def _repeated(experiments: Mapping[str, ExperimentConfig], repeats: int) -> dict[str, ExperimentConfig]:
    """The whole grid again and again, so that a slow phase of the machine does not strike one cell alone.

    The first round keeps its names: a sweep that is resumed with more repeats keeps what it has.
    """
    return {
        name if i == 1 else f"{name}_rep{i}": config
        for i in range(1, repeats + 1)
        for name, config in experiments.items()
    }


def _axes(sweep: SweepConfig, device: str) -> dict[str, list[Any]]:
    """The values of every axis, parsed by the rules of the field that it varies."""
    axes = {}
    for axis, name in AXES.items():
        text = getattr(sweep, axis)
        if text == "auto":
            text = _DEFAULTS[device].get(axis, text)
        items = trainers_named(text) if axis == "trainers" else text.split(",")
        field = fields(TrainingConfig)[name]
        try:
            parsed = [parse(field, item) for item in items]
        except ConfigError as error:
            raise ConfigError(f"{axis}: {error}") from None
        axes[name] = list(dict.fromkeys(parsed))
    return axes


def _read_json(path: str) -> dict[str, object]:
    try:
        if Path(path).exists() and not Path(path).is_file():
            raise refuse("config", path, "a JSON file that can be read (this is no regular file)")
        if Path(path).stat().st_size > _LARGEST_CONFIG:
            raise refuse("config", path, f"a JSON file of at most {_LARGEST_CONFIG:,} bytes")
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except RecursionError:
        raise refuse("config", path, "a JSON object of option names and values") from None
    except OSError as error:
        raise refuse("config", path, f"a JSON file that can be read ({error.strerror})") from None
    except ValueError as error:
        raise refuse("config", path, f"a file of valid JSON ({error})") from None
    if not isinstance(data, dict):
        raise refuse("config", path, "a JSON object of option names and values")
    known = fields(SweepConfig) | experiment_settings()
    for name in data:
        if name not in known:
            raise refuse("config", path, f"an object of options only; {shown(name)} is none")
    return {
        name: ",".join(map(str, value)) if isinstance(value, list) else value for name, value in data.items()
    }


def _merge(from_file: Mapping[str, object], given: Mapping[str, object]) -> dict[str, object]:
    """Values of the file, overridden by each given option that differs from its default.

    `mlflow run` passes every parameter, defaults included, so "given" cannot mean "present".
    """
    known = fields(SweepConfig) | experiment_settings()
    merged = dict(from_file)
    for name, value in given.items():
        if name not in merged or parse(known[name], value) != known[name].default:
            merged[name] = value
    return merged
