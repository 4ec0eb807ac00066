"""Settings of the driving process. Plain data."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile

from dpprof.errors import refuse
from dpprof.vocabulary.launchers import LAUNCHERS, LOCAL
from dpprof.vocabulary.settings import OptionValue, setting

# Linux allows 4,096 bytes; three names follow.
_LONGEST_PATH = 3000


@dataclass(frozen=True)
class DriveConfig:
    """Settings of the driving process, with the launcher's own; none changes the measurements."""

    workers: int = setting(
        0,
        "Experiments to estimate at a time, each in a process of its own; 0 is as many as suit the "
        "launcher: 2 on this machine.",
        minimum=0,
    )
    runs_dir: str = setting("runs", "Folder for the results; each sweep gets a folder in it.")
    timeout_s: float = setting(
        1800.0,
        "Seconds that one experiment, one search for a size, or a check of a model may take before it is "
        "stopped; the counters pass has the same limit.",
        above=0,
    )
    launcher: str = setting(
        LOCAL,
        "; ".join(f"{launcher.name} {launcher.help}" for launcher in LAUNCHERS.values()) + ".",
        choices=tuple(LAUNCHERS),
    )
    options: Mapping[str, OptionValue] = field(default_factory=dict, hash=False)

    @property
    def time_limit(self) -> str:
        """Time limit of one experiment, in words."""
        return f"{self.timeout_s:g} s at most"

    def check_writable(self) -> None:
        """Create the runs folder and try to write there. Raises ConfigError."""
        if len(os.fsencode(Path(self.runs_dir).absolute())) > _LONGEST_PATH:
            raise refuse("runs_dir", self.runs_dir, f"a folder with a path of at most {_LONGEST_PATH} bytes")
        try:
            Path(self.runs_dir).mkdir(parents=True, exist_ok=True)
            with TemporaryFile(dir=self.runs_dir):
                pass
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise refuse("runs_dir", self.runs_dir, f"a folder that can be written ({reason})") from None
