"""A row of a plan as a training script: what `plan.json` says, checked, in a template of `templates/`."""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import jinja2

from dpprof.config.experiment import ExperimentConfig
from dpprof.config.flat import from_flat
from dpprof.config.training import TrainingConfig
from dpprof.errors import ConfigError, DpprofError
from dpprof.figures.privacy import rounded_up
from dpprof.json_files import typed
from dpprof.privacy.guarantee import ACCOUNTANTS, PRV, PrivateSteps
from dpprof.settings import fields, refuse
from dpprof.vocabulary.trainers import TRAINER_NAMES, TRAINERS, short_name
from dpprof.vocabulary.workloads import BUILT_IN_WORKLOAD, WORKLOADS, listed

_PER_SAMPLE, _FAST, _OWN = "snippet_per_sample", "snippet_fast", "snippet_own"
# By trainer: the template, what Opacus puts on the model, and its optimizer.
_WRITTEN = {
    "DPSGDTrainer": (_PER_SAMPLE, "GradSampleModule", "DPOptimizer"),
    "DPFunctorchTrainer": (_PER_SAMPLE, "GradSampleModule", "DPOptimizer"),
    "DPExpandedWeightsTrainer": (_PER_SAMPLE, "GradSampleModuleExpandedWeights", "DPOptimizer"),
    "DPNonWrappingTrainer": (_PER_SAMPLE, "GradSampleHooks", "DPOptimizer"),
    "DPPerLayerClippingTrainer": (_PER_SAMPLE, "GradSampleModule", "DPPerLayerOptimizer"),
    "DPGhostClippingTrainer": (
        _FAST,
        "GradSampleModuleFastGradientClipping",
        "DPOptimizerFastGradientClipping",
    ),
    "DPFastGradientClippingTrainer": (
        _FAST,
        "GradSampleModuleFastGradientClipping",
        "DPOptimizerFastGradientClipping",
    ),
    "DPBookKeepingTrainer": (_OWN, "", ""),
    "DPMixedGhostTrainer": (_OWN, "", ""),
}
_WHY_NOT = {
    "DPAdaptiveClippingTrainer": (
        "adaptive takes no empty batch and cannot split a batch, so it cannot train on Poisson-sampled ones"
    )
}
# The settings that say which model a workload makes.
_OF_MODEL = (
    "workload",
    "workload_options",
    "model_size",
    "seq_len",
    "vocab_size",
    "hidden_dim",
    "num_layers",
    "num_heads",
    "attention",
    "activation_checkpointing",
    "data",
    "train",
    "lora_rank",
    "lora_targets",
)
_CHECKPOINTS = 20
_MOST_STEPS_BETWEEN = 500
# Opacus's sampler draws with a chance of so many parts; a rate may be off by this share of it.
_DRAWN, _MOST_OFF = 2**24, 0.05

_environment = jinja2.Environment(
    loader=jinja2.PackageLoader("dpprof.reports"),
    autoescape=False,  # the page is Python: whatever comes from a file is checked, or goes through repr
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    undefined=jinja2.StrictUndefined,
)


def _python(value: object) -> str:
    """A value as Python source, with the quotes that formatters prefer."""
    text = repr(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_python(key)}: {_python(item)}" for key, item in value.items()) + "}"
    return f'"{text[1:-1]}"' if isinstance(value, str) and '"' not in text else text


_environment.filters["python"] = _python


@dataclass(frozen=True)
class _Asked:
    dataset_size: int
    num_devices: int
    target_epsilon: float


@dataclass(frozen=True)
class _Row:
    trainer: str
    logical_batch: int
    sample_rate: float
    steps: int
    noise_multiplier: float
    epsilon: float
    delta: float
    physical_batch: int


@dataclass(frozen=True)
class _Plan:
    name: str
    asked: dict[str, Any]
    noises: list[dict[str, Any]]
    options: list[dict[str, Any]]
    recommended: dict[str, Any] | None
    experiments: dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Snippet:
    """A script, and what to tell beside it, in sentences."""

    text: str
    notes: tuple[str, ...]


def snippet(plan: object, trainer: str = "", logical_batch: int = 0) -> Snippet:
    """The training script for a row of a plan: of the recommended one, or of the one with this trainer or
    this logical batch.

    Raises ConfigError if there is no such row, if its trainer has no script, or, naming `PLAN`, if this is
    not what `plan.json` holds.
    """
    with _reading():
        found: _Plan = _picked(_Plan, plan)
        asked: _Asked = _picked(_Asked, found.asked)
        rows: list[_Row] = [_picked(_Row, option) for option in found.options]
        best: _Row | None = _picked(_Row, found.recommended) if found.recommended else None
    row = _chosen(rows, best, trainer, logical_batch)
    with _reading():
        if row.trainer not in found.experiments:
            raise DpprofError(f"experiments.{row.trainer} is missing")
        experiment = from_flat(found.experiments[row.trainer])
        accountant = _accountant(found, row)
        _check(asked, row)
    return _written(found.name, asked, row, experiment, accountant)


@contextmanager
def _reading() -> Iterator[None]:
    """Say of what is wrong that it is the plan's fault."""
    try:
        yield
    except DpprofError as error:
        raise ConfigError(f"PLAN: it is no plan that this dpprof can read: {error}") from None


def _picked(kind: Any, data: object) -> Any:
    """The fields of a dataclass from an object that may have more. Raises DpprofError."""
    if not isinstance(data, Mapping):
        raise DpprofError("it is no object")
    return typed(kind, {f.name: data[f.name] for f in dataclasses.fields(kind) if f.name in data})


def _chosen(rows: Sequence[_Row], best: _Row | None, trainer: str, logical_batch: int) -> _Row:
    """The row that is asked for; in what is not asked for, it is like the best."""
    if not rows:
        raise ConfigError("PLAN: it has no row, as no trainer's step fits")
    if best is None and not (trainer and logical_batch):
        raise ConfigError(
            "PLAN: it recommends no row, as no time was known: name one by trainer and logical_batch"
        )
    name = TRAINER_NAMES.get(trainer, trainer) or (best.trainer if best else "")
    batch = logical_batch or (best.logical_batch if best else 0)
    there = dict.fromkeys(row.trainer for row in rows)
    if name not in there:
        raise refuse("trainer", trainer, f"one of the plan's: {', '.join(map(short_name, there))}")
    if name not in _WRITTEN:
        why = _WHY_NOT.get(name, "only its author knows the loop of a trainer that is not dpprof's own")
        able = ", ".join(short_name(other) for other in there if other in _WRITTEN)
        raise refuse("trainer", short_name(name), f"{able or 'none of the plan'}; {why}")
    of_trainer = {row.logical_batch: row for row in rows if row.trainer == name}
    if batch not in of_trainer:
        raise refuse("logical_batch", batch, f"with {short_name(name)} {', '.join(map(str, of_trainer))}")
    return of_trainer[batch]


def _accountant(plan: _Plan, row: _Row) -> str:
    """The one whose guarantee the plan gives for the row's batch. Raises DpprofError."""
    for noise in plan.noises:
        guarantee = noise.get("guarantee")
        if noise.get("logical_batch") == row.logical_batch and isinstance(guarantee, Mapping):
            accountant = guarantee.get("accountant")
            if accountant in ACCOUNTANTS:
                return str(accountant)
    raise DpprofError(f"noises has no accountant for logical batch {row.logical_batch}")


def _check(asked: _Asked, row: _Row) -> None:
    """Numbers of a row that contradict each other would train with another guarantee. Raises DpprofError."""
    PrivateSteps(row.sample_rate, row.steps, row.delta)
    for name, value in (vars(row) | vars(asked)).items():
        if not isinstance(value, str) and not 0 < value < math.inf:
            raise DpprofError(f"{name} is {value}, and must be above 0")
    if not math.isclose(row.sample_rate * asked.dataset_size, row.logical_batch, rel_tol=1e-9):
        raise DpprofError("sample_rate is not logical_batch over dataset_size")


def _drawn_rate(sample_rate: float) -> float:
    """The next rate below that Opacus's sampler can draw with: it compares numbers of 24 bits (torch.rand).
    With any other the true rate would be above the one that is accounted for.
    """
    drawn = math.floor(sample_rate * _DRAWN) / _DRAWN
    if drawn < sample_rate * (1 - _MOST_OFF):
        raise ConfigError(
            f"PLAN: Opacus's sampler cannot draw with a sample rate of {sample_rate:.3g}, only with "
            f"multiples of {1 / _DRAWN:.3g}: take a larger logical batch"
        )
    return drawn


def _written(name: str, asked: _Asked, row: _Row, experiment: ExperimentConfig, accountant: str) -> Snippet:
    template, module, optimizer = _WRITTEN[row.trainer]
    home, _, class_name = TRAINERS[row.trainer].target.partition(":")
    text = _environment.get_template(f"{template}.py.jinja").render(
        vars(row)
        | {
            "name": _one_line(name),
            "trainer": short_name(row.trainer),
            "accountant": accountant,
            "dataset_size": asked.dataset_size,
            "num_devices": asked.num_devices,
            "drawn_rate": _drawn_rate(row.sample_rate),
            "shown_epsilon": rounded_up(row.epsilon),
            "epsilon_error": _epsilon_error(asked, row) if accountant == PRV else None,
            "checkpoint_every": max(1, min(_MOST_STEPS_BETWEEN, row.steps // _CHECKPOINTS)),
            "experiment": experiment,
            "options": experiment.trainer_options,
            "other_algorithm": experiment.other_algorithm,
            "optimizer_settings": _optimizer_settings(experiment),
            "model": _model(experiment),
            "module": module,
            "optimizer": optimizer,
            "is_fast": template == _FAST,
            "max_grad_norm": (
                "[norm_of_each] * len(parameters)" if optimizer == "DPPerLayerOptimizer" else "MAX_GRAD_NORM"
            ),
            "home": home,
            "class_name": class_name,
        }
    )
    return Snippet(text, tuple(_notes(asked)))


def _one_line(text: str) -> str:
    """A name that can stand in a docstring."""
    return "".join(c if c.isalnum() or c in " -_.,()" else "_" for c in text)[:80]


def _epsilon_error(asked: _Asked, row: _Row) -> float:
    """The error that the plan's own answer has."""
    from dpprof.privacy.prv import affordable_error
    from dpprof.privacy.search import PRECISION

    steps = PrivateSteps(row.sample_rate, row.steps, row.delta)
    return affordable_error(row.noise_multiplier, steps, PRECISION * asked.target_epsilon)


def _optimizer_settings(experiment: ExperimentConfig) -> dict[str, float]:
    settings = {"lr": experiment.lr}
    return settings | {"momentum": experiment.momentum} if experiment.optimizer == "sgd" else settings


def _model(experiment: ExperimentConfig) -> dict[str, Any]:
    """The settings that make the plan's model again, without those that have their default."""
    defaults = {name: field.default for name, field in fields(TrainingConfig).items()}
    made = {name: getattr(experiment, name) for name in _OF_MODEL}
    found = {name: value for name, value in made.items() if value != defaults[name]}
    if experiment.workload != BUILT_IN_WORKLOAD:  # whose model may differ by trainer
        found["trainer"] = experiment.trainer
    workload = WORKLOADS.get(listed(experiment.workload))
    own = fields(workload.options) if workload and workload.options else {}
    taken = experiment.options
    return found | {n: taken[n] for n, field in own.items() if n in taken and taken[n] != field.default}


def _notes(asked: _Asked) -> list[str]:
    found = ["replace make_model and make_dataset: until then it trains the plan's model on random data"]
    if asked.num_devices > 1:
        found.append(
            f"the plan is for {asked.num_devices} devices, the script trains on one: sampling on each rank "
            "and the sum of gradients over ranks are left to you"
        )
    return found
