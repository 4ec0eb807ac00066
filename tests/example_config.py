"""Experiments from settings of all parts, as files and options give them."""

from typing import Any

from dpprof.config.experiment import ExperimentConfig
from dpprof.config.flat import from_flat, to_flat


def experiment(**settings: Any) -> ExperimentConfig:
    """An experiment, as given: not resolved."""
    return from_flat(settings)


def changed(config: ExperimentConfig, **settings: Any) -> ExperimentConfig:
    """The experiment with other settings."""
    return from_flat(to_flat(config) | settings)
