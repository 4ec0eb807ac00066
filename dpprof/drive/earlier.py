"""Reuses estimates of earlier campaigns in the same runs folder that would come out the same again."""

import glob
import importlib.metadata
from dataclasses import dataclass
from pathlib import Path

from dpprof import __version__
from dpprof.config.experiment import ExperimentConfig
from dpprof.drive.campaign import Planned
from dpprof.errors import DpprofError
from dpprof.process import processor
from dpprof.record.figures.results import Result, read_result
from dpprof.record.folder import RunFolder, SweepFolder
from dpprof.vocabulary.trainers import TRAINERS
from dpprof.vocabulary.workloads import WORKLOADS, listed

# Packages that an estimate depends on, besides its configuration.
_PACKAGES = ("torch", "opacus", "transformers", "peft")
_OURS = "dpprof."


@dataclass(frozen=True)
class Earlier:
    """Looks up earlier estimates in the folders beside a campaign's own."""

    own: SweepFolder

    def find(self, planned: Planned) -> Result | None:
        """Return the result of the same experiment, name and package versions, if any.

        Where code is not dpprof's own and may have changed, only this campaign's results count.
        """
        campaigns = "*" if _is_versioned(planned.config) else glob.escape(self.own.path.name)
        paths = self.own.path.parent.glob(f"{campaigns}/{planned.name}/config.json")
        for path in sorted(paths, reverse=True):
            folder = RunFolder(path.parent)
            try:
                if folder.read_config() == planned.config and _is_ours(result := read_result(folder)):
                    return result
            except DpprofError:  # damaged, or another version's
                continue
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
