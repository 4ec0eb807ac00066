"""How the driving process runs experiments. Plain data."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile
from typing import TypeVar

from dpprof.settings import OptionValue, options_as, refuse, setting
from dpprof.vocabulary.launchers import LAUNCHERS, LOCAL

T = TypeVar("T")
# Linux allows 4,096 bytes; three names follow.
_LONGEST_PATH = 3000


@dataclass(frozen=True)
class WorkersConfig:
    """How many experiments run at a time, where they do not disturb one another: estimates."""

    workers: int = setting(
        0,
        "Experiments to estimate at a time, each in a process of its own; 0 is as many as suit the "
        "launcher: 2 on this machine, one for each core of a Ray cluster.",
        minimum=0,
    )


@dataclass(frozen=True)
class DriveConfig:
    """How the driving process runs experiments; nothing here changes what is measured.

    `options` are the values of the launcher's own options, by name; what is left out has its default.
    """

    runs_dir: str = setting("runs", "Folder for the results; each sweep gets a folder in it.")
    timeout_s: float = setting(
        1800.0,
        "Seconds one experiment may take before it is stopped; the counters pass has the same limit.",
        above=0,
    )
    launcher: str = setting(
        LOCAL,
        "; ".join(f"{launcher.name} {launcher.help}" for launcher in LAUNCHERS.values()) + ".",
        choices=tuple(LAUNCHERS),
    )
    options: Mapping[str, OptionValue] = field(default_factory=dict, hash=False)

    def options_of(self, kind: type[T]) -> T:
        """The values of the launcher's own options, as the dataclass that declares them."""
        return options_as(kind, self.options)

    def check_writable(self) -> None:
        """Make the runs folder and try to write there. Raises ConfigError."""
        if len(os.fsencode(Path(self.runs_dir).absolute())) > _LONGEST_PATH:
            raise refuse("runs_dir", self.runs_dir, f"a folder with a path of at most {_LONGEST_PATH} bytes")
        try:
            Path(self.runs_dir).mkdir(parents=True, exist_ok=True)
            with TemporaryFile(dir=self.runs_dir):
                pass
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise refuse("runs_dir", self.runs_dir, f"a folder that can be written ({reason})") from None
