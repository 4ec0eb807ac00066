"""Experiments measured and estimated in this process."""

import dataclasses
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
from example_config import experiment

from dpprof.config.experiment import ExperimentConfig
from dpprof.measure.experiment import run_experiment
from dpprof.measure.passes.ledger import Kept, Ledger, keep_ledger, warmup_steps
from dpprof.measure.trainers.build import load_trainer
from dpprof.measure.trainers.fake_tensors import fake_tensors
from dpprof.measure.trainers.training import Training
from dpprof.record.folder import RunFolder
from dpprof.record.record import Record
from dpprof.vocabulary.trainers import TRAINERS

T = TypeVar("T")


def known(value: T | None) -> T:
    """A figure that was measured."""
    assert value is not None
    return value


def only_run(place: Path) -> RunFolder:
    """The run folder of the one experiment that was done in a place."""
    (config,) = place.glob("runs/*/*/config.json")
    return RunFolder(config.parent)


def folder_for(path: Path, config: ExperimentConfig) -> RunFolder:
    """A run folder of the experiment's name."""
    folder = RunFolder(path / config.run_name)
    folder.create(config)
    return folder


def measured(path: Path, config: ExperimentConfig | None = None, **settings: Any) -> Record:
    """The record of an experiment, or of one with these settings."""
    config = config or experiment(**settings).resolve(cuda_available=False)
    return run_experiment(config, folder_for(path, config), lambda text: None)


def kept(config: ExperimentConfig, *, is_fake: bool) -> Kept:
    """The ledger of one step after warm-up, with data or on fake tensors."""
    with fake_tensors(load_trainer(config.trainer)) if is_fake else nullcontext():
        return keep_ledger(partial(Training, config), Ledger("cpu"), 1, warmup_steps=warmup_steps(config))


def put_in_place(monkeypatch: pytest.MonkeyPatch, of: str, trainer: type[Any]) -> None:
    """Let a trainer's name stand for another class."""
    info = dataclasses.replace(TRAINERS[of], target=f"{trainer.__module__}:{trainer.__name__}")
    monkeypatch.setitem(TRAINERS, of, info)
