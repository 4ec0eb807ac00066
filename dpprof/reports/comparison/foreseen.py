"""The estimates of a larger model that a sweep keeps beside its runs, for its verdict."""

from collections.abc import Sequence

from dpprof.figures.results import read_results
from dpprof.record.folder import SweepFolder
from dpprof.reports.comparison.comparison import Comparison, compare


def foreseen_of(sources: Sequence[str]) -> Comparison | None:
    """Those of the sweep that a command's sources are; None where they are several."""
    return read_foreseen(SweepFolder(sources[0])) if len(sources) == 1 else None


def read_foreseen(sweep: SweepFolder) -> Comparison:
    """What a sweep's folder has of them; one that cannot be read is left out."""
    results, _ = read_results((folder.name, folder) for folder in sweep.foreseen.runs())
    return compare(sweep.name, {sweep.name: results})
