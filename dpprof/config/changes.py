"""Changes of settings that may reduce an experiment's memory or time; nothing is estimated here.

All keep the logical batch, or nearly, so that costs of a logical step compare.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dpprof.config.devices import DEVICES
from dpprof.config.experiment import ExperimentConfig
from dpprof.config.flat import with_own_options
from dpprof.config.options import refuse_untaken, training_options
from dpprof.errors import ConfigError
from dpprof.vocabulary.loops import DOCUMENTED, LEAN
from dpprof.vocabulary.parallel import DDP, FSDP2
from dpprof.vocabulary.precision import BF16
from dpprof.vocabulary.settings import OptionValue
from dpprof.vocabulary.trainable import ALL, LORA
from dpprof.vocabulary.trainers import short_name, trainer_info

# Effects on the training, smallest first.
SAME, LARGER, ROUNDING, LEARNED = "same", "larger", "rounding", "learned"
ALTERS = {SAME: "nothing", LARGER: "the logical batch", ROUNDING: "rounding", LEARNED: "what is learned"}
BATCH = "physical batch"


@dataclass(frozen=True)
class Change:
    """Settings to change. Only one of each `kind` can be made; `alters` is its effect on the training."""

    name: str
    kind: str
    settings: Mapping[str, OptionValue]
    alters: str = SAME

    @property
    def options(self) -> str:
        """The settings as command-line options."""
        shown = {name: str(value).lower() for name, value in self.settings.items()}
        if "trainer" in self.settings:
            shown["trainer"] = short_name(str(self.settings["trainer"]))
        return " ".join(f"--{name.replace('_', '-')} {value}" for name, value in shown.items())


def changed(config: ExperimentConfig, settings: Mapping[str, OptionValue]) -> ExperimentConfig:
    """Return a resolved experiment with other settings, its own options included. Raises ConfigError."""
    own = training_options()
    of_parts: dict[str, Any] = {name: value for name, value in settings.items() if name not in own}
    options = {name: value for name, value in settings.items() if name in own}
    made = dataclasses.replace(config, options={**config.options, **options}, **of_parts)
    refuse_untaken((made.trainer, made.workload), options)
    return with_own_options(made).resolve(cuda_available=True)


def possible_changes(
    config: ExperimentConfig, trainers: Sequence[str]
) -> tuple[list[Change], dict[str, str]]:
    """Return the possible changes, except smaller batches, and by name why others are left out."""
    found, left_out = [], {}
    device = DEVICES.get(config.estimating.target)
    for change in _changes(config, trainers):
        # No rate is known for bf16 without matrix units.
        if "precision" in change.settings and device is not None and device.bf16_tflops is None:
            left_out[change.name] = f"{config.estimating.target} has no matrix units for bf16"
            continue
        try:
            other = changed(config, change.settings)
        except ConfigError as error:
            left_out[change.name] = str(error)
            continue
        is_other = other.other_algorithm != config.other_algorithm
        found.append(dataclasses.replace(change, alters=LEARNED) if is_other else change)
    return found, left_out


def _changes(config: ExperimentConfig, trainers: Sequence[str]) -> Iterator[Change]:
    private = [name for name in dict.fromkeys(trainers) if trainer_info(name).is_private]
    for name in private if trainer_info(config.trainer).is_private else ():
        if name != config.trainer:
            yield Change(short_name(name), "trainer", {"trainer": name})
    if not config.activation_checkpointing:
        yield Change("activation checkpointing", "checkpointing", {"activation_checkpointing": True})
    if config.precision != BF16:
        yield Change(BF16, "precision", {"precision": BF16}, ROUNDING)
    if config.loop == DOCUMENTED:
        yield Change("the lean loop", "loop", {"loop": LEAN})
    for setting, value, name in trainer_info(config.trainer).alternatives:
        if value != config.options[setting]:
            yield Change(name, setting, {setting: value})
    if config.parallel == DDP and config.world_size > 1:
        yield Change("fsdp2 instead of ddp", "parallel", {"parallel": FSDP2})
    if config.train == ALL:
        yield Change("LoRA", "train", {"train": LORA}, LEARNED)


def smaller_batch(config: ExperimentConfig, logical: int = 0) -> Change:
    """Return the change to the next smaller physical batch of a logical batch, by default a device's own.

    It is the largest divisor of the logical batch between a third and a half of the batch, else half, which
    makes the logical batch a little larger. Raises ConfigError if there is none or the experiment cannot
    accumulate.
    """
    size, logical = config.batch_size, logical or config.batch_size * config.accumulation_steps
    if size == 1:
        raise ConfigError("it is one sample, which cannot be split")
    half, third = -(-size // 2), -(-size // 3)
    part = next((part for part in range(half, third - 1, -1) if logical % part == 0), half)
    steps = -(-logical // part)
    name, alters = f"{BATCH} {part}", SAME
    if part * steps != logical:
        name += f" (logical batch {part * steps * config.world_size:,})"
        alters = LARGER
    change = Change(name, BATCH, {"batch_size": part, "accumulation_steps": steps}, alters)
    changed(config, change.settings)
    return change
