"""Finds estimates of earlier campaigns in the same runs folder that would come out the same again."""

import glob
import importlib.metadata
from contextlib import suppress
from pathlib import Path

from dpprof import __version__
from dpprof.config.experiment import ExperimentConfig
from dpprof.errors import DpprofError
from dpprof.process import processor
from dpprof.record.figures.results import Result, read_result
from dpprof.record.folder import RunFolder, SweepFolder
from dpprof.vocabulary.trainers import TRAINERS
from dpprof.vocabulary.workloads import WORKLOADS, listed

# Packages that an estimate depends on, besides its configuration.
_PACKAGES = ("torch", "opacus", "transformers", "peft")
_OURS = "dpprof."


def earlier_result(own: SweepFolder, name: str, config: ExperimentConfig) -> Result | None:
    """Return the result of the same experiment, name and package versions, if there is one.

    Looks in the folder of a campaign and beside it. Where code is not dpprof's own and may have changed, only
    the campaign's own folder counts.
    """
    campaigns = "*" if _is_versioned(config) else glob.escape(own.path.name)
    for path in sorted(own.path.parent.glob(f"{campaigns}/{name}/config.json"), reverse=True):
        folder = RunFolder(path.parent)
        with suppress(DpprofError):  # damaged, or another version's
            if folder.read_config() == config and _is_ours(result := read_result(folder)):
                return result
    return None


def _is_versioned(config: ExperimentConfig) -> bool:
    """True if package versions determine the code that it runs."""
    workload = WORKLOADS.get(listed(config.workload))
    if workload is None or (config.of_listed and Path(config.of_listed).exists()):
        return False
    return all(info.target.startswith(_OURS) for info in (workload, TRAINERS[config.trainer]))


def _is_ours(result: Result) -> bool:
    if not result.is_complete or result.record is None or not result.folder.ledger.exists():
        return False
    environment = result.record.environment
    if result.config.device == "cpu" and not environment.items() >= processor().items():
        return False
    versions = {name: _version(name) for name in _PACKAGES} | {"dpprof": __version__}
    return all(environment.get(f"{name}_version") == version for name, version in versions.items())


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
