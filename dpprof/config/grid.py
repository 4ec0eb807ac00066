"""The grid of a sweep: which experiments, in which order, under which names."""

import dataclasses
import itertools
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpprof.config.experiment import (
    BUILT_IN_WORKLOAD,
    ESTIMATE,
    MEASURE_ONLY,
    PRECISIONS,
    ExperimentConfig,
    resolve_device,
)
from dpprof.config.model_sizes import MODEL_SIZES
from dpprof.config.settings import fields, parse, parse_all, refuse, setting
from dpprof.errors import ConfigError
from dpprof.vocabulary.trainers import TRAINERS

# Each axis of the grid and the ExperimentConfig field that it varies.
AXES = {
    "model_sizes": "model_size",
    "precisions": "precision",
    "seq_lens": "seq_len",
    "batch_sizes": "batch_size",
    "trainers": "trainer",
}
_DEFAULTS = {
    "cuda": {"model_sizes": "1b", "batch_sizes": "4,8", "seq_lens": "512,1024"},
    "cpu": {"model_sizes": "tiny", "batch_sizes": "2,4", "seq_lens": "256,512"},
}


@dataclass(frozen=True)
class SweepConfig:
    """The settings of a sweep that an experiment does not have. Lists are comma-separated."""

    trainers: str = setting("all", f"Trainers, or all: {', '.join(TRAINERS)}.")
    batch_sizes: str = setting("auto", "Physical batch sizes; auto is 4,8 on CUDA and 2,4 on the CPU.")
    seq_lens: str = setting("auto", "Sequence lengths; auto is 512,1024 on CUDA and 256,512 on the CPU.")
    model_sizes: str = setting(
        "auto", f"Sizes of {', '.join(MODEL_SIZES)}; auto is 1b on CUDA and tiny on the CPU."
    )
    precisions: str = setting("fp32", f"Precisions of {', '.join(PRECISIONS)}.")
    repeats: int = setting(
        1, "Times to measure every cell, in turns with the others: tells runs' spread from change.", minimum=1
    )
    config: str = setting(
        "", "JSON file of experiment and grid options; an option given here that is not its default wins."
    )
    sweep_name: str = setting("", "Name of the sweep and its folder; made from the time if empty.")
    resume: bool = setting(False, "Do only the cells of sweep_name that have no finished record yet.")

    def __post_init__(self) -> None:
        if self.sweep_name and not re.fullmatch(r"[\w][\w. -]*", self.sweep_name):
            raise refuse("sweep_name", self.sweep_name, "letters, digits, '_', '-', '.' and blanks")
        if self.resume and not self.sweep_name:
            raise ConfigError("resume: got 'true', allowed: only together with sweep_name=<earlier sweep>")


@dataclass(frozen=True)
class Grid:
    """A sweep made concrete: resolved experiments with the name of each."""

    config: SweepConfig
    experiments: dict[str, ExperimentConfig]


def build_grid(values: Mapping[str, object], *, cuda_available: Callable[[], bool]) -> Grid:
    """Turn raw options (of `SweepConfig` and of `ExperimentConfig` outside the axes) into experiments.

    `cuda_available` is asked once the options are read: finding out takes seconds.
    Raises ConfigError for a bad value, an unreadable JSON file, or an option unknown to a sweep.
    """
    path = parse(fields(SweepConfig)["config"], values.get("config", ""))
    if path:
        values = _merge(_read_json(path), values)
    if values.get("passes") == ESTIMATE:  # a file may be there for both, to measure and to estimate
        values = {k: v for k, v in values.items() if k == "passes" or k not in MEASURE_ONLY}
    sweep_names = fields(SweepConfig)
    sweep = parse_all(SweepConfig, {k: v for k, v in values.items() if k in sweep_names})
    rest = {k: v for k, v in values.items() if k not in sweep_names}
    for name in rest:
        if name in AXES.values():
            raise ConfigError(f"{name}: a sweep varies it, use its plural")
    base = parse_all(ExperimentConfig, rest)
    has_cuda = base.is_estimate or cuda_available()
    axes = _axes(sweep, resolve_device(base.device, cuda_available=has_cuda))
    experiments: dict[str, ExperimentConfig] = {}
    for point in itertools.product(*axes.values()):
        cell = dict(zip(axes, point, strict=True))
        config = dataclasses.replace(base, **cell).resolve(cuda_available=has_cuda)
        name = config.run_name
        if config.workload != BUILT_IN_WORKLOAD and len(axes["model_size"]) > 1:
            name += f"_{config.model_size}"
        if len(axes["precision"]) > 1:
            name += f"_{config.precision}"
        experiments[name] = config
    return Grid(sweep, _repeated(experiments, sweep.repeats))


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
        if axis == "trainers" and text == "all":
            text = ",".join(TRAINERS)
        field = fields(ExperimentConfig)[name]
        try:
            parsed = [parse(field, item) for item in text.split(",")]
        except ConfigError as error:
            raise ConfigError(f"{axis}: {error}") from None
        axes[name] = list(dict.fromkeys(parsed))
    return axes


def _read_json(path: str) -> dict[str, object]:
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise refuse("config", path, f"a JSON file that can be read ({error.strerror})") from None
    except ValueError as error:
        raise refuse("config", path, f"a file of valid JSON ({error})") from None
    if not isinstance(data, dict):
        raise refuse("config", path, "a JSON object of option names and values")
    known = {**fields(SweepConfig), **fields(ExperimentConfig)}
    for name in data:
        if name not in known:
            raise refuse("config", path, f"an object of options only; {name!r} is none")
    return {
        name: ",".join(map(str, value)) if isinstance(value, list) else value for name, value in data.items()
    }


def _merge(from_file: Mapping[str, object], given: Mapping[str, object]) -> dict[str, object]:
    """Values of the file, overridden by each given option that differs from its default.

    `mlflow run` passes every parameter, defaults included, so "given" cannot mean "present".
    """
    known = {**fields(ExperimentConfig), **fields(SweepConfig)}
    merged = dict(from_file)
    for name, value in given.items():
        if name not in merged or parse(known[name], value) != known[name].default:
            merged[name] = value
    return merged
