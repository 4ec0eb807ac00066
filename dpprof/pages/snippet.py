"""A row of a plan as a training script: the checked values of `plan.json` in a template."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jinja2

from dpprof.config.budget import weaknesses
from dpprof.config.experiment import ExperimentConfig
from dpprof.config.flat import from_flat
from dpprof.config.training import TrainingConfig
from dpprof.errors import ConfigError, DpprofError, refuse
from dpprof.findings.plan.reading import KeptPlan, KeptRow, picked, read_plan, reading
from dpprof.json_files import typed
from dpprof.privacy.guarantee import ACCOUNTANTS, PRV, PrivateSteps
from dpprof.record.figures.privacy import rounded_up
from dpprof.vocabulary.settings import fields
from dpprof.vocabulary.trainer_info import OPACUS
from dpprof.vocabulary.trainers import TRAINERS, short_name, trainer_info
from dpprof.vocabulary.workloads import BUILT_IN_WORKLOAD, HUGGING_FACE, WORKLOADS, listed

# Settings of a workload's model.
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
    "channels_last",
    "weights_dtype",
    "data",
    "train",
    "lora_rank",
    "lora_targets",
    "adapter_dtype",
)
_CHECKPOINTS = 20
_MOST_STEPS_BETWEEN = 500
# Resolution of Opacus's sampling rate, and largest relative error of a rate.
_DRAWN, _MOST_OFF = 2**24, 0.05

_environment = jinja2.Environment(
    loader=jinja2.PackageLoader("dpprof.pages"),
    autoescape=False,  # the output is Python: values from files are checked or go through repr
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    undefined=jinja2.StrictUndefined,
)


def _python(value: object) -> str:
    """Return a value as Python source, with double quotes if possible."""
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
class Snippet:
    """A script, and notes on it as sentences."""

    text: str
    notes: tuple[str, ...]


def snippet(data: object, trainer: str = "", logical_batch: int = 0) -> Snippet:
    """Return the training script of a plan's row; see `KeptPlan.row`.

    Raises ConfigError if there is no such row, if its trainer has no script, or if the data is not a
    `plan.json`.
    """
    with reading():
        plan = read_plan(data)
        asked = typed(_Asked, picked(_Asked, plan.asked))
    row = plan.row(trainer, logical_batch)
    if not trainer_info(row.trainer).script:
        able = [short_name(name) for name in plan.trainers if trainer_info(name).script]
        said = f"{', '.join(able) or 'none of the plan'}; {_why_not(row.trainer)}"
        raise refuse("trainer", short_name(row.trainer), said)
    with reading():
        accountant = _accountant(plan, row)
        _check(asked, row)
        experiment = from_flat(plan.settings(row))
    return _written(plan.name, asked, row, experiment, accountant)


def _why_not(name: str) -> str:
    """Say why a trainer of another package has no script."""
    info = TRAINERS.get(name)
    if info is None:
        return f"{name} is not installed here, and only dpprof's own trainers have scripts"
    limit = next((limit for limit in info.limits if limit.setting == "poisson_sampling"), None)
    if limit is not None:
        return f"it cannot train on Poisson-sampled batches: {limit.why}"
    return (
        f"only dpprof's own trainers have scripts, and it is of the package {info.target.partition('.')[0]}"
    )


def _accountant(plan: KeptPlan, row: KeptRow) -> str:
    """Return the accountant of the row's guarantee. Raises DpprofError."""
    for noise in plan.noises:
        guarantee = noise.get("guarantee")
        if noise.get("logical_batch") == row.logical_batch and isinstance(guarantee, Mapping):
            accountant = guarantee.get("accountant")
            if accountant in ACCOUNTANTS:
                return str(accountant)
    raise DpprofError(f"noises has no accountant for logical batch {row.logical_batch}")


def _check(asked: _Asked, row: KeptRow) -> None:
    """Raise DpprofError for contradictory numbers, which would give another guarantee."""
    PrivateSteps(row.sample_rate, row.steps, row.delta)
    for name, value in (vars(row) | vars(asked)).items():
        if isinstance(value, int | float) and not 0 < value < math.inf:
            raise DpprofError(f"{name} is {value}, and must be above 0")
    if not math.isclose(row.sample_rate * asked.dataset_size, row.logical_batch, rel_tol=1e-9):
        raise DpprofError("sample_rate is not logical_batch over dataset_size")


def _drawn_rate(sample_rate: float) -> float:
    """Round a rate down to one that Opacus's sampler can draw: it compares 24-bit numbers (torch.rand).

    Otherwise the true rate would exceed the accounted one.
    """
    drawn = math.floor(sample_rate * _DRAWN) / _DRAWN
    if drawn < sample_rate * (1 - _MOST_OFF):
        raise ConfigError(
            f"plan: Opacus's sampler cannot draw with a sample rate of {sample_rate:.3g}, only with "
            f"multiples of {1 / _DRAWN:.3g}: take a larger logical batch"
        )
    return drawn


def _written(
    name: str, asked: _Asked, row: KeptRow, experiment: ExperimentConfig, accountant: str
) -> Snippet:
    trainer = trainer_info(row.trainer)
    home, _, class_name = trainer.target.partition(":")
    weak = weaknesses(row.epsilon, row.delta, asked.dataset_size)
    given = vars(row) | vars(asked)
    text = _environment.get_template(f"{trainer.script}.py.jinja").render(
        given
        | {
            "name": "".join(c if c.isalnum() or c in " -_.,()" else "_" for c in name)[:80],
            "weaknesses": weak,
            "trainer": short_name(row.trainer),
            "accountant": accountant,
            "drawn_rate": _drawn_rate(row.sample_rate),
            "shown_epsilon": rounded_up(row.epsilon),
            "epsilon_error": _epsilon_error(asked, row) if accountant == PRV else None,
            "checkpoint_every": max(1, min(_MOST_STEPS_BETWEEN, row.steps // _CHECKPOINTS)),
            "experiment": experiment,
            "is_of_transformers": listed(experiment.workload) == HUGGING_FACE,
            "model": _model(experiment),
            "is_of_opacus": trainer.library == OPACUS,
            "home": home,
            "class_name": class_name,
        }
    )
    notes = [f"weak privacy: {weakness}" for weakness in weak]
    notes.append("replace make_model and make_dataset: until then it trains the plan's model on random data")
    if asked.num_devices > 1:
        notes.append(
            f"the plan is for {asked.num_devices} devices, the script trains on one: sampling on each rank "
            "and the sum of gradients over ranks are left to you"
        )
    return Snippet(text, tuple(notes))


def _epsilon_error(asked: _Asked, row: KeptRow) -> float:
    """Return the error of the plan's own epsilon."""
    from dpprof.privacy.prv import affordable_error
    from dpprof.privacy.search import PRECISION

    steps = PrivateSteps(row.sample_rate, row.steps, row.delta)
    return affordable_error(row.noise_multiplier, steps, PRECISION * asked.target_epsilon)


def _model(experiment: ExperimentConfig) -> dict[str, Any]:
    """Return the settings of the plan's model, without defaults."""
    defaults = {name: field.default for name, field in fields(TrainingConfig).items()}
    made = {name: getattr(experiment, name) for name in _OF_MODEL}
    found = {name: value for name, value in made.items() if value != defaults[name]}
    if experiment.workload != BUILT_IN_WORKLOAD:  # its model may differ by trainer
        found["trainer"] = experiment.trainer
    workload = WORKLOADS.get(listed(experiment.workload))
    own = fields(workload.options) if workload and workload.options else {}
    taken = experiment.options
    return found | {n: taken[n] for n, field in own.items() if n in taken and taken[n] != field.default}
