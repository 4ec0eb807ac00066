"""Checks a workload before anything is measured: that it exists, keeps the contract, and trains.

    python -m dpprof.measure --check FOLDER

One step is watched without a trainer's library, which shows all traps at once. Then every trainer does a
step, to see if it really trains.
"""

import contextlib
import dataclasses
import gc
import itertools
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from dpprof.config.experiment import ExperimentConfig
from dpprof.errors import DpprofError
from dpprof.measure.gradient_check import switch_dropout_off
from dpprof.measure.mixed_samples import mixing_traps
from dpprof.measure.observe import Observer
from dpprof.measure.passes.weights import refuse_lost
from dpprof.measure.stacks import folder_of
from dpprof.measure.trainers.build import import_trainers, load_trainer
from dpprof.measure.trainers.draws import dropouts
from dpprof.measure.trainers.fake_tensors import fake_tensors
from dpprof.measure.trainers.nested import moved
from dpprof.measure.trainers.training import WARNINGS, Training
from dpprof.measure.trainers.watched_step import Trap, WatchedStep, watch_step
from dpprof.measure.workloads.factory import first_line
from dpprof.measure.workloads.workload import build_workload, checked_batch
from dpprof.record.check import CheckAnswer, Finding
from dpprof.vocabulary.grouping import grouped
from dpprof.vocabulary.messages import is_oom
from dpprof.vocabulary.precision import FP32, dtypes_in_words, short_dtype
from dpprof.vocabulary.trainers import trainer_info
from dpprof.vocabulary.workloads import WORKLOADS, listed

Say = Callable[[str], None]


def check_contract(config: ExperimentConfig) -> None:
    """Build an experiment's workload and take a batch, on fake tensors for an estimate.

    Raises ConfigError or WorkloadError if they are unusable. Other errors are only printed, since the
    experiment may have more memory, or data.
    """
    on_device: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
    if config.is_estimate:
        how = dataclasses.replace(config.estimating, target="none")
        config = dataclasses.replace(config, how=how, device="cpu")
        on_device = fake_tensors()
    try:
        with on_device:
            checked_batch(next(iter(build_workload(config).batches)))
    except DpprofError:
        raise
    except Exception:
        traceback.print_exc()


def check_training(experiments: Sequence[ExperimentConfig], say: Say) -> CheckAnswer:
    """Do a step with every trainer. Raises ConfigError or WorkloadError for an unusable workload."""
    cuda = torch.cuda.is_available()
    experiments = [config.resolve(cuda_available=cuda) for config in experiments]
    import_trainers("", say)
    say("one step, watched")
    traps: dict[str, list[Trap]] = {config.trainer: [] for config in experiments}
    seen = [_foresee(those, traps) for those in _with_one_model(experiments)]
    changed = tuple(dict.fromkeys(text for _, changes in seen for text in changes))
    began = time.monotonic()
    for done, config in enumerate(experiments):
        left = round((time.monotonic() - began) / done * (len(experiments) - done)) if done else 0
        about = f", about {left} s left" if left else ""
        say(f"one step of {config.trainer} ({done + 1} of {len(experiments)}{about})")
        gc.collect()
        traps[config.trainer] += _tried(config, traps[config.trainer])
    trains = {trainer: all(trap.is_warning for trap in found) for trainer, found in traps.items()}
    return CheckAnswer(None, trains, seen[0][0], tuple(_findings(traps)), changed)


def _with_one_model(experiments: Sequence[ExperimentConfig]) -> list[list[ExperimentConfig]]:
    """Group experiments whose trainers get the same model."""
    info = WORKLOADS.get(listed(experiments[0].workload))
    if info is None or not info.differs_by_trainer:
        return [list(experiments)]

    def form(config: ExperimentConfig) -> Any:
        with contextlib.suppress(Exception), fake_tensors():  # what is wrong shows with real ones
            made = build_workload(dataclasses.replace(config, device="cpu"))
            return made.changed, tuple((name, p.shape) for name, p in made.model.named_parameters())
        return config.trainer

    return list(grouped(experiments, form).values())


def _foresee(
    experiments: Sequence[ExperimentConfig], traps: dict[str, list[Trap]]
) -> tuple[str, tuple[str, ...]]:
    """Add each trainer's traps; return a description of batch and model, and the changes to the model."""
    config = experiments[0]
    workload = build_workload(config)
    batches = iter(workload.batches)
    first = checked_batch(next(batches))
    batch = moved(first, torch.device(config.device))
    parameters = list(workload.model.parameters())
    num_parameters = sum(p.numel() for p in parameters)
    dtypes = {short_dtype(str(p.dtype)) for p in parameters}
    inputs, targets = (str(tree_map(_shape, part)).replace("'", "") for part in batch)
    try:
        step = watch_step(workload, batch, config)
        drawing = _of_dropout(step, lambda: watch_step(workload, batch, config))
    except Exception:  # every trainer's step will report it
        traceback.print_exc()
    else:
        for one in experiments:
            traps[one.trainer] += load_trainer(one.trainer).foresee(step) + drawing
        private = [one.trainer for one in experiments if trainer_info(one.trainer).is_private]
        mixing = mixing_traps(workload, itertools.chain([first], batches), config) if private else []
        for trainer in private:
            traps[trainer] += mixing
    of_type = "" if dtypes <= {FP32} else f" in {dtypes_in_words(dtypes)}"
    seen = f"inputs {inputs}, targets {targets}; {num_parameters:,} parameters{of_type} on {config.device}"
    return seen, workload.changed


def _tried(config: ExperimentConfig, foreseen: list[Trap]) -> list[Trap]:
    """Do a real step and return new traps: the error it raises, or the trainer's warnings.

    None where samples mix: no step is private, and modules that mix them may fail in several ways.
    """
    if any(trap.name == "mixed" and not trap.is_warning for trap in foreseen):
        return []
    try:
        training = Training(config)
        training.run(2 if config.poisson_sampling else 1, Observer())
        training.held_tensors()
        refuse_lost(training, config)
    except DpprofError as error:
        text, is_explained = str(error), True
    except Exception as error:
        traceback.print_exc()
        text, is_explained = _unexplained(error, config), False
    else:
        return [Trap("silent", text, "", is_warning=True) for text in training.warnings()]
    known = [trap.text for trap in foreseen if not trap.is_warning]
    # An unexplained error may well come from a foreseen trap.
    return [] if text in known or (known and not is_explained) else [Trap("error", text, "")]


def _unexplained(error: Exception, config: ExperimentConfig) -> str:
    if is_oom(error):
        return (
            f"out of memory in one step with {config.batch_size} samples of {config.seq_len} tokens: check a "
            "smaller model or a shorter seq_len, where the same traps show"
        )
    others = tuple(folder_of(package) for package in ("torch", "opacus", "dpprof"))
    trace = traceback.extract_tb(error.__traceback__)
    own = [line for line in trace if not line.filename.startswith(others)]
    where = f" ({own[-1].filename}, line {own[-1].lineno})" if own else ""
    return f"a step fails, and why is not known here: {first_line(error)}{where}"


def _of_dropout(step: WatchedStep, watch_again: Callable[[], WatchedStep]) -> list[Trap]:
    if not step.drawing:
        return []
    paths = [step.path(module) for module, _ in dropouts(step.model)]
    traps = [Trap("dropout", WARNINGS["dropout"].format(module=path), path, True) for path in paths]
    switch_dropout_off(step.model)
    for module in dict.fromkeys(watch_again().drawing):
        path = "the workload's loss" if module is None else step.path(module)
        traps.append(Trap("draws", WARNINGS["draws"].format(module=path), path, True))
    return traps


def _findings(traps: dict[str, list[Trap]]) -> list[Finding]:
    """Merge the traps of all trainers, each sentence once even if several modules have it."""
    pairs = [(trap, trainer) for trainer, found in traps.items() for trap in dict.fromkeys(found)]
    by_trap = grouped(pairs, lambda pair: pair[0])

    def shared(trap: Trap) -> tuple[bool, str, tuple[str, ...]]:
        said = trap.text.replace(trap.module, "", 1) if trap.module else trap.text
        return trap.is_warning, said, tuple(trainer for _, trainer in by_trap[trap])

    findings = [
        Finding(group[0].text, of, tuple(trap.module for trap in group[1:]), is_warning)
        for (is_warning, _, of), group in grouped(by_trap, shared).items()
    ]
    return sorted(findings, key=lambda finding: finding.is_warning)


def _shape(leaf: Any) -> str:
    if not isinstance(leaf, Tensor):
        return type(leaf).__name__
    return f"{str(leaf.dtype).removeprefix('torch.')} {tuple(leaf.shape)}"
