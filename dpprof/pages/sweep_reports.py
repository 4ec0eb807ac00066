"""Reports on a whole sweep in its folder."""

from collections.abc import Iterable

from dpprof.findings.comparison.comparison import compare, foreseen_of
from dpprof.findings.comparison.data import compute
from dpprof.findings.comparison.reports import SweepReports
from dpprof.pages.comparison import page
from dpprof.pages.comparison.export import table
from dpprof.pages.comparison.summary import description, to_markdown
from dpprof.pages.reports.roofline import write_sweep_roofline
from dpprof.record.figures.results import Result
from dpprof.record.files import write_text
from dpprof.record.folder import SweepFolder


def write_sweep_reports(folder: SweepFolder, results: Iterable[Result]) -> SweepReports:
    """Compare a sweep's results and always rewrite its reports, as results may have changed."""
    results = list(results)
    comparison = compare(folder.name, {folder.name: results})
    foreseen = foreseen_of([folder.path], lambda text: None)  # unreadable ones were reported before
    data = compute(comparison, foreseen)
    texts = {
        folder.summary_markdown: to_markdown(data),
        folder.summary_json: comparison.to_json(),
        folder.comparison_page: page.render(data),
    }
    for path, text in texts.items():
        write_text(path, text)
    files = [*texts, *write_sweep_roofline(folder, comparison)]
    return SweepReports(data, description(data), table(comparison), files)
