"""The check of a workload as plain data: what was asked, what was found, and the folder that holds both."""

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dpprof.config.experiment import ExperimentConfig
from dpprof.config.flat import from_flat, to_flat
from dpprof.json_files import read_json, typed
from dpprof.record.files import write_text

# How much of a workload is checked; each depth includes those before it.
MODULE = "module"
CONTRACT = "contract"
TRAINING = "training"


@dataclass(frozen=True)
class Finding:
    """What some trainers stumble on, in a sentence; `also` names further modules with the same trap.

    A warning does not keep the model from training.
    """

    text: str
    trainers: tuple[str, ...]
    also: tuple[str, ...] = ()
    is_warning: bool = False


@dataclass(frozen=True)
class CheckAnswer:
    """What a check found.

    `refused` says why the workload cannot be used at all. Else, for a check of the training, `trains` tells
    for each trainer whether it can train the model; `seen` describes the batch and the model, `changed` what
    was changed in it for training.
    """

    refused: str | None = None
    trains: dict[str, bool] = field(default_factory=dict)
    seen: str = ""
    findings: tuple[Finding, ...] = ()
    changed: tuple[str, ...] = ()


class CheckFolder:
    """A folder for one check."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._asked = self.path / "check.json"
        self._answer = self.path / "answer.json"
        self.log = self.path / "check.log"

    def ask(self, depth: str, experiments: Sequence[ExperimentConfig]) -> None:
        """Write what is to be checked: experiments that train one workload."""
        asked = {"depth": depth, "experiments": [to_flat(config) for config in experiments]}
        write_text(self._asked, json.dumps(asked))

    def read_asked(self) -> tuple[str, list[ExperimentConfig]]:
        """The depth and the experiments."""
        asked = read_json(self._asked)
        return asked["depth"], [from_flat(values) for values in asked["experiments"]]

    def answer(self, answer: CheckAnswer) -> None:
        """Write what was found."""
        write_text(self._answer, json.dumps(dataclasses.asdict(answer)))

    def read_answer(self) -> CheckAnswer | None:
        """What was found; None if the process left no answer."""
        if not self._answer.exists():
            return None
        return typed(CheckAnswer, read_json(self._answer))
