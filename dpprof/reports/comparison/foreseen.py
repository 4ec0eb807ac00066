"""The estimates of a larger model that a sweep keeps beside its runs, for its verdict."""

from collections.abc import Callable, Sequence

from dpprof.figures.results import read_results
from dpprof.record.folder import SweepFolder
from dpprof.reports.comparison.comparison import Comparison, compare


def foreseen_of(sources: Sequence[str], warn: Callable[[str], None]) -> Comparison | None:
    """Those of the sweep that a command's sources are; None where they are several. Warns of what cannot be
    read.
    """
    if len(sources) != 1:
        return None
    found, damaged = read_foreseen(SweepFolder(sources[0]))
    for text in damaged:
        warn(f"left out {text}")
    return found


def read_foreseen(sweep: SweepFolder) -> tuple[Comparison, list[str]]:
    """What a sweep's folder has of them, and a sentence for each one that cannot be read."""
    results, damaged = read_results((folder.name, folder) for folder in sweep.foreseen.runs())
    return compare(sweep.name, {sweep.name: results}), damaged
