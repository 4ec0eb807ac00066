"""Settings of single commands: a grid, a search, a plan, advice, a check, a script."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count, takewhile

from dpprof.config.budget import BudgetConfig
from dpprof.config.device_times import TYPES
from dpprof.config.devices import DEVICES
from dpprof.config.training import LONGEST_NAME, MODEL_SIZES, PRECISIONS, TrainingConfig
from dpprof.errors import ConfigError, refuse
from dpprof.vocabulary.precision import FP32, TF32
from dpprof.vocabulary.settings import fields, setting
from dpprof.vocabulary.trainers import TRAINERS_HELP

# Axes of the grid, and the setting that each varies.
AXES = {
    "model_sizes": "model_size",
    "precisions": "precision",
    "seq_lens": "seq_len",
    "batch_sizes": "batch_size",
    "trainers": "trainer",
}

# Sizes that a fit maximises, and WORLD_SIZE, which it minimises.
WORLD_SIZE = "world_size"
FIT_ALONG = ("batch_size", "seq_len", WORLD_SIZE)
# More physical batches per logical one need no more memory than two.
ACCUMULATING = 2
HEADROOM = (
    "5%",
    "Share of the device's memory to keep free, as 5% or 0%: for other processes, and what an estimate does "
    "not see.",
)

_AUTO = "auto"
_FIRST_BATCH, _LEAST_BATCH, _AUTO_BATCHES = 512, 32, 4
_MOST_BATCHES = 24


@dataclass(frozen=True)
class SweepConfig:
    """The grid of `sweep`, `estimate` and `fit`. Lists are comma-separated."""

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
    config: str = setting("", "JSON file with options. The command line overrides it.")
    sweep_name: str = setting("", "Name of the sweep and its folder; if empty, made from the time.")
    resume: bool = setting(False, "Run only the cells of sweep_name that have no finished record yet.")

    def __post_init__(self) -> None:
        if self.sweep_name and not re.fullmatch(r"[\w][\w. -]*", self.sweep_name):
            raise refuse("sweep_name", self.sweep_name, "letters, digits, '_', '-', '.' and blanks")
        if len(self.sweep_name.encode()) > LONGEST_NAME:
            raise refuse("sweep_name", self.sweep_name, f"a name of at most {LONGEST_NAME} bytes")
        if self.resume and not self.sweep_name:
            raise ConfigError("resume: got 'true', allowed: only together with sweep_name=<earlier sweep>")


class WithHeadroom:
    """Settings that include a headroom."""

    headroom: str

    @property
    def usable(self) -> float:
        """Share of the device's memory that a step may need. Raises ConfigError."""
        if not re.fullmatch(r"\d{1,2}(\.\d+)?%", self.headroom):
            raise refuse("headroom", self.headroom, "a percentage from 0% to below 100%, as 5%")
        return 1 - float(self.headroom.removesuffix("%")) / 100


@dataclass(frozen=True)
class FitConfig(WithHeadroom):
    """Settings of `fit`, the search for the largest size."""

    along: str = setting(
        "batch_size",
        "Which size to maximise, or with world_size to minimise; the others are fixed.",
        choices=FIT_ALONG,
    )
    logical_batch: int = setting(
        0,
        "Samples in the logical batch that training needs; shows how many physical steps it takes.",
        minimum=0,
    )
    headroom: str = setting(*HEADROOM)
    verify: bool = setting(False, "Measure the answer and the next larger size on this machine's device.")

    def __post_init__(self) -> None:
        if self.logical_batch and self.along != "batch_size":
            raise refuse("logical_batch", self.logical_batch, f"0 with along={self.along}")
        _ = self.usable


@dataclass(frozen=True)
class PlanConfig(BudgetConfig, WithHeadroom):
    """Settings of `plan`: a privacy budget, a data set and the available devices."""

    target_epsilon: float = setting(8.0, "Epsilon that the training may spend.", above=0, below=1e4)
    logical_batches: str = setting(
        _AUTO,
        "Logical batches to weigh, over all devices: a list, or FIRST:LAST for each doubling between; auto "
        f"doubles from {_FIRST_BATCH} on, or less for min_steps, until a larger batch is not worth its cost.",
    )
    min_steps: int = setting(
        200,
        "Logical steps that training needs at least: a batch that makes fewer is not recommended while "
        "another makes enough.",
        minimum=1,
    )
    trainers: str = setting("all", TRAINERS_HELP)
    num_devices: int = setting(
        1,
        "Devices that train together, each on its part of the batch: by ddp if parallel is none.",
        minimum=1,
    )
    headroom: str = setting(*HEADROOM)
    measured: str = setting(
        "",
        "Times come from these: a sweep or run, as `dpprof compare` takes them, or none. Else from what "
        "runs_dir and MLflow have.",
    )
    price_per_device_hour: float = setting(0.0, "Price of an hour of one device; 0: none.", minimum=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.usable, self.batches

    @property
    def batches(self) -> tuple[int, ...]:
        """Logical batches to consider. Raises ConfigError."""
        if self.logical_batches == _AUTO:
            first = _FIRST_BATCH
            while self.dataset_size and first > _LEAST_BATCH and not self.is_long(first):
                first //= 2
            sizes = (first << i for i in range(_AUTO_BATCHES))
            small_enough = [size for size in sizes if not 0 < self.dataset_size < 2 * size]
            return tuple(small_enough) or (max(1, self.dataset_size // 2),)
        try:
            if ":" in self.logical_batches:
                first, last = map(int, self.logical_batches.split(":"))
                found = list(takewhile(lambda size: 0 < size <= last, (first << i for i in count())))
            else:
                found = [int(text) for text in self.logical_batches.split(",")]
        except ValueError:
            found = []
        if not found or min(found) < 1 or len(found) > _MOST_BATCHES:
            wanted = f"up to {_MOST_BATCHES} whole numbers above 0, separated by commas, or FIRST:LAST"
            raise refuse("logical_batches", self.logical_batches, wanted)
        return tuple(dict.fromkeys(found))

    @property
    def possible_batches(self) -> tuple[int, ...]:
        """Every logical batch that may be weighed. Raises ConfigError."""
        found = list(self.batches)
        while (larger := self.next_batch(found)) is not None:
            found.append(larger)
        return tuple(found)

    def next_batch(self, batches: Sequence[int]) -> int | None:
        """Return the next batch: at most half of the data, with enough steps; None if batches were given."""
        batch = 2 * max(batches)
        is_possible = 2 * batch <= self.dataset_size and self.is_long(batch)
        is_asked = self.logical_batches == _AUTO and len(batches) < _MOST_BATCHES
        return batch if is_possible and is_asked else None

    def is_long(self, batch: int) -> bool:
        """Tell whether a logical batch leaves enough steps, as far as that depends on the batch."""
        return bool(self.steps) or self.num_steps(batch) >= self.min_steps

    def check_against(self, batch: int) -> None:
        """Raise ConfigError for a missing or small data set, a weak guarantee, or too many devices."""
        if not self.dataset_size:
            raise ConfigError("dataset_size: it is missing, allowed: the number of samples in the data set")
        self.check_strength(self.target_epsilon)
        self.check_batch("logical_batches", batch, batch)
        if batch < self.num_devices:
            raise refuse("num_devices", self.num_devices, f"at most the logical batch, {batch:,}")


@dataclass(frozen=True)
class AdviceConfig(WithHeadroom):
    """Settings of `advise`."""

    trainers: str = setting("all", TRAINERS_HELP)
    headroom: str = setting(*HEADROOM)

    def __post_init__(self) -> None:
        _ = self.usable


@dataclass(frozen=True)
class FromPlanConfig:
    """A plan that provides settings that the user does not give."""

    plan: str = setting(
        "",
        "plan.json of a plan, or its folder: its recommended row, or the row of the trainer and the logical "
        "batch that you name, gives the settings that you do not give.",
    )
    logical_batch: int = setting(0, "Logical batch of the plan's row; 0: the recommended.", minimum=0)

    def __post_init__(self) -> None:
        if self.logical_batch and not self.plan:
            raise refuse("logical_batch", self.logical_batch, "only with a plan, whose row it names")


@dataclass(frozen=True)
class CheckConfig:
    """Settings of `check` and `verify`."""

    trainers: str = setting("all", TRAINERS_HELP)


@dataclass(frozen=True)
class TestConfig:
    """Settings of `test`."""

    __test__ = False  # not a pytest class

    device: str = setting(
        "auto",
        "auto is CUDA if available, else the CPU.",
        choices=fields(TrainingConfig)["device"].metadata["choices"],
    )


@dataclass(frozen=True)
class CalibrateConfig:
    """Settings of `calibrate`."""

    device: str = setting(
        "auto",
        "auto is CUDA if available, else the CPU.",
        choices=fields(TrainingConfig)["device"].metadata["choices"],
    )
    precisions: str = setting(
        _AUTO,
        f"Precisions: {', '.join(TYPES)}; auto is all of them on CUDA and {FP32} on the CPU.",
    )
    world_size: int = setting(1, "Ranks to measure at once, and their collectives.", minimum=1, below=4097)

    def __post_init__(self) -> None:
        self.precisions_on(self.device)

    def precisions_on(self, device: str) -> tuple[str, ...]:
        """Return the precisions to measure on cpu or cuda, each once, or on auto. Raises ConfigError."""
        on_cpu = [name for name in TYPES if name != TF32]
        if self.precisions == _AUTO:
            return (FP32,) if device == "cpu" else tuple(TYPES)
        found = tuple(dict.fromkeys(name.strip() for name in self.precisions.split(",")))
        if not set(found) <= TYPES.keys():
            raise refuse("precisions", self.precisions, f"auto, or {', '.join(TYPES)} with commas between")
        if device == "cpu" and TF32 in found:
            raise refuse(
                "precisions", self.precisions, f"{' and '.join(on_cpu)} on the CPU: {TF32} needs CUDA"
            )
        return found


@dataclass(frozen=True)
class WatchConfig:
    """Settings of `watch`."""

    script: str = setting("", "Script to run, as SCRIPT.")
    arguments: str = setting("", "Its arguments in one text, quoted as in a shell; others follow SCRIPT.")
    name: str = setting("", "Name of the run; the script's by default.")
    warmup_steps: int = setting(3, "Steps before anything is measured, at least one.", minimum=1)
    measured_steps: int = setting(10, "Timed steps.", minimum=1)
    runs_dir: str = setting("runs", "Folder for the results; each run gets a folder in it.")
    end: bool = setting(False, "End the script when everything is measured.")
    target: str = setting(
        "none",
        "GPU to estimate the loop for, without measuring it: nothing is trained.",
        choices=("none", *DEVICES),
    )
    log: str = setting(
        "auto",
        "Log the run to MLflow at the end; auto does so if `mlflow run` started the command.",
        choices=("auto", "true", "false"),
    )

    @property
    def split_arguments(self) -> list[str]:
        """The arguments as a list. Raises ConfigError."""
        try:
            return shlex.split(self.arguments)
        except ValueError as error:
            raise refuse("arguments", self.arguments, f"arguments as in a shell ({error})") from None
