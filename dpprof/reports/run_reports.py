"""What is written of one experiment into its run folder."""

from dpprof.figures.results import Result
from dpprof.reports.formats.run import write_flame_graphs, write_memory_tracks, write_snapshot
from dpprof.reports.report import Report, write_missing
from dpprof.reports.roofline.write import write_run_roofline
from dpprof.reports.tensorboard import write_scalars
from dpprof.reports.timeline import write_timeline
from dpprof.reports.verify import write_verify

RUN_REPORTS: tuple[Report[Result], ...] = (
    Report("memory_timeline.html", version=6, write=write_timeline),
    Report("roofline.html", version=3, write=write_run_roofline),
    Report("verify.html", version=1, write=write_verify),
    Report("memory_snapshot.pickle", version=1, write=write_snapshot),
    Report("memory_trace.json.gz", version=1, write=write_memory_tracks),
    Report("peak_memory.collapsed", version=1, write=write_flame_graphs),
    Report("tensorboard", version=2, write=write_scalars),
)


def write_run_reports(result: Result) -> None:
    """Write the reports that a run's folder lacks or has in another version.

    Raises DpprofError if a file that they are made from is damaged, such as the ledger.
    """
    write_missing(RUN_REPORTS, result, result.folder.reports)
