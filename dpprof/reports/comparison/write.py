"""Everything that a sweep says as a whole, written into its folder."""

from collections.abc import Iterable
from pathlib import Path

from dpprof.figures.results import Result
from dpprof.record.folder import SweepFolder, write_bytes, write_text
from dpprof.reports.comparison import images, page
from dpprof.reports.comparison.bars import MEASURES
from dpprof.reports.comparison.cells import Comparison, compare
from dpprof.reports.comparison.markdown import to_markdown
from dpprof.reports.roofline.write import write_sweep_roofline


def write_comparison(folder: SweepFolder, results: Iterable[Result]) -> Comparison:
    """Compare a sweep's results and write the summary, the pages and the images beside its runs."""
    results = list(results)
    comparison = compare(folder.name, {folder.name: results})
    write_text(folder.summary_markdown, to_markdown(comparison))
    write_text(folder.summary_json, comparison.to_json())
    folders = {(folder.name, result.name): result.folder for result in results}
    write_text(folder.comparison_page, page.render(page.compute(comparison, folders)))
    write_sweep_roofline(folder, comparison)
    for measure in MEASURES:
        figure = images.draw(comparison, measure)
        path = folder.image(measure.key)
        if figure is None:
            path.unlink(missing_ok=True)
        else:
            write_bytes(path, images.png(figure))
    return comparison


def written(folder: SweepFolder) -> list[Path]:
    """The files that `write_comparison` left."""
    may_lack = [folder.roofline_page, *(folder.image(measure.key) for measure in MEASURES)]
    return [
        folder.summary_markdown,
        folder.summary_json,
        folder.comparison_page,
        *(path for path in may_lack if path.exists()),
    ]
