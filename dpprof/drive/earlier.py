"""Estimates that an earlier campaign left in the same runs folder, and that would come out the same again."""

import importlib.metadata
from dataclasses import dataclass

from dpprof import __version__
from dpprof.drive.campaign import Planned
from dpprof.errors import DpprofError
from dpprof.figures.results import Result, read_result
from dpprof.record.folder import RunFolder, SweepFolder

# What decides an estimate beside its configuration, as a record's environment names it.
_PACKAGES = ("torch", "opacus")


@dataclass(frozen=True)
class Earlier:
    """Looks beside a campaign's own folder."""

    own: SweepFolder

    def find(self, planned: Planned) -> Result | None:
        """The result of the same experiment under the same name, made with the same packages, if any."""
        paths = self.own.path.parent.glob(f"*/{planned.name}/config.json")
        for path in sorted(paths, reverse=True):
            folder = RunFolder(path.parent)
            try:
                if folder.read_config() == planned.config and _is_ours(result := read_result(folder)):
                    return result
            except DpprofError:  # damaged, or another version's
                continue
        return None


def _is_ours(result: Result) -> bool:
    if not result.is_complete or result.record is None or not result.folder.ledger.exists():
        return False
    environment = result.record.environment
    versions = {f"{name}_version": importlib.metadata.version(name) for name in _PACKAGES}
    return environment.items() >= (versions | {"dpprof_version": __version__}).items()
