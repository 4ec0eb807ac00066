"""Reports on a whole sweep in its folder."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from dpprof.findings.comparison.comparison import compare, foreseen_of
from dpprof.findings.comparison.data import ComparisonData, compute
from dpprof.findings.comparison.reports import SweepReports
from dpprof.findings.comparison.rows import MEASURES
from dpprof.pages.comparison import page
from dpprof.pages.comparison.export import table
from dpprof.pages.comparison.summary import description, to_markdown
from dpprof.pages.image import bars_of, png
from dpprof.pages.roofline.page import write_sweep_roofline
from dpprof.record.figures.results import Result
from dpprof.record.files import write_bytes, write_text
from dpprof.record.folder import SweepFolder


def write_sweep_reports(folder: SweepFolder, results: Iterable[Result]) -> SweepReports:
    """Compare a sweep's results and always rewrite its reports, as results may have changed."""
    results = list(results)
    comparison = compare(folder.name, {folder.name: results})
    folders = {(folder.name, result.name): result.folder for result in results}
    foreseen = foreseen_of([folder.path], lambda text: None)  # unreadable ones were reported before
    data = compute(comparison, folders, foreseen)
    texts = {
        folder.summary_markdown: to_markdown(data),
        folder.summary_json: comparison.to_json(),
        folder.comparison_page: page.render(data),
    }
    for path, text in texts.items():
        write_text(path, text)
    files = [*texts, *write_sweep_roofline(folder, comparison), *_images(folder, data)]
    return SweepReports(data, description(data), table(data), files)


def _images(folder: SweepFolder, data: ComparisonData) -> Iterator[Path]:
    """Draw the images that have data; remove earlier files of the others."""
    for measure in MEASURES:
        figure, path = bars_of(data, measure), folder.image(measure.key)
        if figure is None:
            path.unlink(missing_ok=True)
        else:
            write_bytes(path, png(figure))
            yield path
