"""Writes MLproject from the configuration classes, so that an option is declared in one place.

    python scripts/write_mlproject.py

A test holds the file in the repository equal to what this writes.
"""

from pathlib import Path

import yaml

from dpprof.cli.test import TestConfig
from dpprof.config import DriveConfig, ExperimentConfig
from dpprof.grid import AXES, SweepConfig
from dpprof.settings import fields

HEADER = "# Made by scripts/write_mlproject.py from dpprof/config.py; change it there.\n"
CLASSES = {
    "profile": (ExperimentConfig, DriveConfig),
    "test": (TestConfig, DriveConfig),
    "sweep": (SweepConfig, ExperimentConfig, DriveConfig),
}


def mlproject() -> str:
    """The text of the MLproject file."""
    entry_points = {}
    for command, classes in CLASSES.items():
        without = AXES.values() if command == "sweep" else ()
        declared = [f for cls in classes for name, f in fields(cls).items() if name not in without]
        entry_points[command] = {
            "parameters": {
                field.name: {
                    "type": "float" if type(field.default) in (int, float) else "string",
                    "default": str(field.default).lower()
                    if isinstance(field.default, bool)
                    else field.default,
                }
                for field in declared
            },
            "command": " ".join(
                [f"python -m dpprof {command}", *(f"--{f.name} {{{f.name}}}" for f in declared)]
            ),
        }
    project = {"name": "dpprof", "conda_env": "conda.yaml", "entry_points": entry_points}
    return HEADER + yaml.safe_dump(project, sort_keys=False, width=1_000_000)


if __name__ == "__main__":
    (Path(__file__).parent.parent / "MLproject").write_text(mlproject())
