"""The settings of a sweep: the axes of its grid, and how it is run."""

import re
from dataclasses import dataclass

from dpprof.config.model_sizes import MODEL_SIZES
from dpprof.config.training import LONGEST_NAME, PRECISIONS
from dpprof.errors import ConfigError
from dpprof.settings import refuse, setting
from dpprof.vocabulary.trainers import TRAINERS_HELP

# Each axis of the grid and the setting of an experiment that it varies.
AXES = {
    "model_sizes": "model_size",
    "precisions": "precision",
    "seq_lens": "seq_len",
    "batch_sizes": "batch_size",
    "trainers": "trainer",
}


@dataclass(frozen=True)
class SweepConfig:
    """The settings of a sweep that an experiment does not have. Lists are comma-separated."""

    trainers: str = setting("all", TRAINERS_HELP)
    batch_sizes: str = setting("auto", "Physical batch sizes; auto is 4,8.")
    seq_lens: str = setting("auto", "Sequence lengths; auto is 512,1024 on CUDA and 32 on the CPU.")
    model_sizes: str = setting(
        "auto", f"Model sizes: {', '.join(MODEL_SIZES)}; auto is 1b on CUDA and mini on the CPU."
    )
    precisions: str = setting("fp32", f"Precisions: {', '.join(PRECISIONS)}.")
    repeats: int = setting(
        1,
        "How many times to measure every cell, round by round; shows how much runs vary.",
        minimum=1,
        below=1001,
    )
    config: str = setting("", "JSON file with options. The command line overrides it, except with defaults.")
    sweep_name: str = setting("", "Name of the sweep and its folder; if empty, made from the time.")
    resume: bool = setting(False, "Run only the cells of sweep_name that have no finished record yet.")

    def __post_init__(self) -> None:
        if self.sweep_name and not re.fullmatch(r"[\w][\w. -]*", self.sweep_name):
            raise refuse("sweep_name", self.sweep_name, "letters, digits, '_', '-', '.' and blanks")
        if len(self.sweep_name.encode()) > LONGEST_NAME:
            raise refuse("sweep_name", self.sweep_name, f"a name of at most {LONGEST_NAME} bytes")
        if self.resume and not self.sweep_name:
            raise ConfigError("resume: got 'true', allowed: only together with sweep_name=<earlier sweep>")
