"""Changes to an experiment that may make it need less memory or time, each as settings; nothing is estimated.

All of them keep the logical batch, so that costs of a logical step compare.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dpprof.config.devices import DEVICES
from dpprof.config.experiment import ExperimentConfig
from dpprof.config.flat import with_own_options
from dpprof.config.own_options import refuse_untaken, training_options
from dpprof.errors import ConfigError
from dpprof.settings import OptionValue
from dpprof.vocabulary.clipping import NORM_FORMS
from dpprof.vocabulary.loops import DOCUMENTED, LEAN
from dpprof.vocabulary.parallel import DDP, FSDP2
from dpprof.vocabulary.trainable import ALL, LORA
from dpprof.vocabulary.trainers import short_name, trainer_info

# What a change alters for the training, the least first.
SAME, ROUNDING, LEARNED = "same", "rounding", "learned"
ALTERS = {SAME: "nothing", ROUNDING: "rounding", LEARNED: "what is learned"}
BATCH = "physical batch"


@dataclass(frozen=True)
class Change:
    """Settings to change. Of a `kind` only one can be made; `alters` says what it alters for the training."""

    name: str
    kind: str
    settings: Mapping[str, OptionValue]
    alters: str = SAME

    @property
    def options(self) -> str:
        """The settings as options of the command line."""
        shown = {name: str(value).lower() for name, value in self.settings.items()}
        if "trainer" in self.settings:
            shown["trainer"] = short_name(str(self.settings["trainer"]))
        return " ".join(f"--{name.replace('_', '-')} {value}" for name, value in shown.items())


def changed(config: ExperimentConfig, settings: Mapping[str, OptionValue]) -> ExperimentConfig:
    """A resolved experiment with other settings, its own options among them. Raises ConfigError."""
    own = training_options()
    of_parts: dict[str, Any] = {name: value for name, value in settings.items() if name not in own}
    options = {name: value for name, value in settings.items() if name in own}
    made = dataclasses.replace(config, **of_parts)
    refuse_untaken((made.trainer, made.workload), own, options)
    return with_own_options(made, {**config.options, **options}).resolve(cuda_available=True)


def possible_changes(
    config: ExperimentConfig, trainers: Sequence[str]
) -> tuple[list[Change], dict[str, str]]:
    """The changes that an experiment allows, but for smaller batches, and by name why others are left out.

    `trainers` are those to train with instead, if the experiment's own is private as they are.
    """
    found, left_out = [], {}
    for change in _changes(config, trainers):
        try:
            _refuse_slow_bf16(config, change)
            other = changed(config, change.settings)
        except ConfigError as error:
            left_out[change.name] = str(error)
            continue
        is_other = other.other_algorithm != config.other_algorithm
        found.append(dataclasses.replace(change, alters=LEARNED) if is_other else change)
    return found, left_out


def _changes(config: ExperimentConfig, trainers: Sequence[str]) -> Iterator[Change]:
    for name in dict.fromkeys(trainers):
        if (
            name != config.trainer
            and trainer_info(name).is_private
            and trainer_info(config.trainer).is_private
        ):
            yield Change(short_name(name), "trainer", {"trainer": name})
    if not config.activation_checkpointing:
        yield Change("activation checkpointing", "checkpointing", {"activation_checkpointing": True})
    if config.precision == "fp32":
        yield Change("bf16", "precision", {"precision": "bf16"}, ROUNDING)
    if config.loop == DOCUMENTED:
        yield Change("the lean loop", "loop", {"loop": LEAN})
    for form in NORM_FORMS if "norm" in config.options else ():
        if form != config.options["norm"]:
            yield Change(f"{form} norms", "norm", {"norm": form})
    if config.parallel == DDP and config.world_size > 1:
        yield Change("fsdp2 instead of ddp", "parallel", {"parallel": FSDP2})
    if config.train == ALL:
        yield Change("LoRA", "train", {"train": LORA}, LEARNED)


def _refuse_slow_bf16(config: ExperimentConfig, change: Change) -> None:
    """No rate of a device without matrix units for bf16 is known: its least time would mean nothing."""
    device = DEVICES.get(config.estimating.target)
    if "precision" in change.settings and device is not None and device.bf16_tflops is None:
        raise ConfigError(f"{config.estimating.target} has no matrix units for bf16")


def smaller_batch(config: ExperimentConfig) -> Change:
    """The next smaller physical batch of the same logical one: half of it, if it is even.

    Raises ConfigError if there is none, or if the experiment cannot accumulate.
    """
    size = config.batch_size
    if size == 1:
        raise ConfigError("it is one sample, which cannot be split")
    parts = next(number for number in range(2, size + 1) if size % number == 0)
    steps = parts * config.accumulation_steps
    change = Change(
        f"{BATCH} {size // parts}", BATCH, {"batch_size": size // parts, "accumulation_steps": steps}
    )
    changed(config, change.settings)
    return change
