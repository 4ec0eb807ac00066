"""Request and result of a workload check as plain data, and the folder that holds both."""

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from dpprof.config.experiment import ExperimentConfig
from dpprof.config.flat import from_flat, to_flat
from dpprof.json_files import read_if_there, read_json, typed
from dpprof.record.files import write_text

# Depths of a check; each includes those before it.
MODULE = "module"
CONTRACT = "contract"
TRAINING = "training"


@dataclass(frozen=True)
class Finding:
    """A problem that some trainers have with a model; `also` names further modules that have it.

    A warning does not prevent training.
    """

    text: str
    trainers: tuple[str, ...]
    also: tuple[str, ...] = ()
    is_warning: bool = False


@dataclass(frozen=True)
class CheckAnswer:
    """Result of a check.

    `refused` says why the workload cannot be used at all. Otherwise, for a check of the training, `trains`
    tells for each trainer whether it can train the model. `seen` describes the batch and the model, `changed`
    lists changes made to the model for training.
    """

    refused: str | None = None
    trains: dict[str, bool] = field(default_factory=dict)
    seen: str = ""
    findings: tuple[Finding, ...] = ()
    changed: tuple[str, ...] = ()


class CheckFolder:
    """Folder of one check."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._asked = self.path / "check.json"
        self._answer = self.path / "answer.json"
        self.log = self.path / "check.log"

    def ask(self, depth: str, experiments: Sequence[ExperimentConfig]) -> None:
        """Write the request: the depth, and experiments that train one workload."""
        asked = {"depth": depth, "experiments": [to_flat(config) for config in experiments]}
        write_text(self._asked, json.dumps(asked))

    def read_asked(self) -> tuple[str, list[ExperimentConfig]]:
        """Read the depth and the experiments."""
        asked = read_json(self._asked)
        return asked["depth"], [from_flat(values) for values in asked["experiments"]]

    def answer(self, answer: CheckAnswer) -> None:
        """Write the result."""
        write_text(self._answer, json.dumps(dataclasses.asdict(answer)))

    def read_answer(self) -> CheckAnswer | None:
        """Read the result; None if the process left none."""
        return read_if_there(self._answer, partial(typed, CheckAnswer))
