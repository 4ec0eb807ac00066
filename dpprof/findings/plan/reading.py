"""Read a plan's rows back from `plan.json`, and choose one."""

import dataclasses
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dpprof.errors import ConfigError, DpprofError, refuse
from dpprof.json_files import read_json, typed
from dpprof.privacy.guarantee import Guarantee
from dpprof.vocabulary.trainers import TRAINER_NAMES, short_name


@dataclass(frozen=True)
class KeptRow:
    """A way to train; see `TrainingOption`. `predicted` is what `profile --plan` compares with."""

    trainer: str
    logical_batch: int
    sample_rate: float
    steps: int
    noise_multiplier: float
    epsilon: float
    delta: float
    physical_batch: int
    physical_batches: float
    predicted: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class KeptPlan:
    """A plan with its rows; `experiments` are the settings of each trainer's step."""

    name: str
    asked: dict[str, Any]
    noises: list[dict[str, Any]]
    options: list[KeptRow]
    recommended: KeptRow | None
    experiments: dict[str, dict[str, Any]]
    next_best: KeptRow | None = None

    @property
    def trainers(self) -> list[str]:
        """Trainers that have rows."""
        return list(dict.fromkeys(row.trainer for row in self.options))

    def row(self, trainer: str = "", logical_batch: int = 0) -> KeptRow:
        """Return the recommended row, or that of a trainer and a logical batch.

        Either defaults to that of the recommended row, or of the next best if none is recommended. Raises
        ConfigError if there is no such row, or if none is recommended and neither is given.
        """
        if not self.options:
            raise ConfigError("plan: it has no row, as no trainer's step fits")
        best = self.recommended
        if best is None:
            best = self.next_best or self.options[0]
            if not trainer and not logical_batch:
                raise ConfigError(
                    "plan: it recommends no row, as no time is known: name one by trainer and "
                    f"logical_batch. The next best is {short_name(best.trainer)} at {best.logical_batch}"
                )
        name = TRAINER_NAMES.get(trainer, trainer) or best.trainer
        if name not in self.trainers:
            there = ", ".join(map(short_name, self.trainers))
            raise refuse("trainer", trainer, f"one of the plan's: {there}")
        batch = logical_batch or best.logical_batch
        chosen = best if (name, batch) == (best.trainer, best.logical_batch) else None
        of_trainer = {row.logical_batch: row for row in self.options if row.trainer == name}
        if batch not in of_trainer:
            raise refuse("logical_batch", batch, f"with {short_name(name)} {', '.join(map(str, of_trainer))}")
        return chosen or of_trainer[batch]

    def settings(self, row: KeptRow) -> dict[str, Any]:
        """Return the settings of a logical step of a row, with full physical batches. Raises DpprofError."""
        if row.trainer not in self.experiments:
            raise DpprofError(f"experiments.{row.trainer} is missing")
        return self.experiments[row.trainer] | {
            "batch_size": row.physical_batch,
            "accumulation_steps": max(1, round(row.physical_batches)),
            "noise_multiplier": row.noise_multiplier,
        }


@dataclass(frozen=True)
class _Noises:
    """The noises of a plan, one for each logical batch."""

    noises: list[dict[str, Any]]


def earlier_guarantees(runs_dir: Path) -> list[Guarantee]:
    """Return what the accountants answered to all plans in a folder; what cannot be read is left out."""
    found: dict[Guarantee, None] = {}
    for path in sorted(runs_dir.glob("*/plan.json"), reverse=True):
        with suppress(DpprofError):
            for noise in typed(_Noises, picked(_Noises, read_json(path))).noises:
                found[typed(Guarantee, noise.get("guarantee"))] = None
    return list(found)


@contextmanager
def reading() -> Iterator[None]:
    """Report errors of the body as errors in the plan."""
    try:
        yield
    except DpprofError as error:
        raise ConfigError(f"plan: it is no plan that this dpprof can read: {error}") from None


def read_plan(data: object) -> KeptPlan:
    """Read the contents of a `plan.json`, which may have more fields. Raises DpprofError."""
    found = picked(KeptPlan, data)
    for name in ("recommended", "next_best"):
        if found.get(name) is not None:
            found[name] = picked(KeptRow, found[name])
    if isinstance(found.get("options"), list):
        found["options"] = [picked(KeptRow, row) for row in found["options"]]
    return typed(KeptPlan, found)


def picked(kind: type[Any], data: object) -> dict[str, Any]:
    """Return an object's fields that a dataclass has. Raises DpprofError."""
    if not isinstance(data, Mapping):
        raise DpprofError("it is no object")
    return {f.name: data[f.name] for f in dataclasses.fields(kind) if f.name in data}
