"""The estimates of a larger model that a sweep keeps beside its runs, for its verdict."""

from collections.abc import Iterator, Sequence

from dpprof.errors import DpprofError
from dpprof.figures.results import Result, read_result
from dpprof.record.folder import SweepFolder
from dpprof.reports.comparison.comparison import Comparison, compare


def foreseen_of(sources: Sequence[str]) -> Comparison | None:
    """Those of the sweep that a command's sources are; None where they are several."""
    return read_foreseen(SweepFolder(sources[0])) if len(sources) == 1 else None


def read_foreseen(sweep: SweepFolder) -> Comparison:
    """What a sweep's folder has of them; one that cannot be read is left out."""
    return compare(sweep.name, {sweep.name: _readable(sweep)})


def _readable(sweep: SweepFolder) -> Iterator[Result]:
    for folder in sweep.foreseen.runs():
        try:
            yield read_result(folder)
        except DpprofError:
            continue
