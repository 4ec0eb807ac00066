"""What is written of a sweep as a whole into its folder."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from dpprof.figures.results import Result
from dpprof.record.files import write_bytes, write_text
from dpprof.record.folder import SweepFolder
from dpprof.reports.comparison import images, page
from dpprof.reports.comparison.bars import MEASURES
from dpprof.reports.comparison.comparison import compare
from dpprof.reports.comparison.data import ComparisonData, compute
from dpprof.reports.comparison.foreseen import read_foreseen
from dpprof.reports.comparison.markdown import to_markdown
from dpprof.reports.png import png
from dpprof.reports.report import Report, write_all
from dpprof.reports.roofline.write import write_sweep_roofline


@dataclass(frozen=True)
class _Swept:
    """A sweep's folder, and what its comparison tells."""

    folder: SweepFolder
    data: ComparisonData


def _write_summary(swept: _Swept) -> list[Path]:
    folder = swept.folder
    write_text(folder.summary_markdown, to_markdown(swept.data))
    write_text(folder.summary_json, swept.data.comparison.to_json())
    return [folder.summary_markdown, folder.summary_json]


def _write_page(swept: _Swept) -> list[Path]:
    write_text(swept.folder.comparison_page, page.render(swept.data))
    return [swept.folder.comparison_page]


def _write_roofline(swept: _Swept) -> list[Path]:
    return write_sweep_roofline(swept.folder, swept.data.comparison)


def _write_images(swept: _Swept) -> list[Path]:
    """Those that can be drawn; what an earlier try left of the others is removed."""
    written = []
    for measure in MEASURES:
        figure, path = images.draw(swept.data, measure), swept.folder.image(measure.key)
        if figure is None:
            path.unlink(missing_ok=True)
        else:
            write_bytes(path, png(figure))
            written.append(path)
    return written


SWEEP_REPORTS: tuple[Report[_Swept], ...] = (
    Report("summary.md", version=3, write=_write_summary),
    Report("comparison.html", version=4, write=_write_page),
    Report("roofline.html", version=2, write=_write_roofline),
    Report("peak_memory.png", version=2, write=_write_images),
)


def write_sweep_reports(folder: SweepFolder, results: Iterable[Result]) -> tuple[ComparisonData, list[Path]]:
    """Compare a sweep's results and write all its reports, every time, since the results may have changed.
    Returns what was computed, and the files.
    """
    results = list(results)
    comparison = compare(folder.name, {folder.name: results})
    folders = {(folder.name, result.name): result.folder for result in results}
    foreseen, _ = read_foreseen(folder)  # what cannot be read was told before
    data = compute(comparison, folders, foreseen)
    return data, write_all(SWEEP_REPORTS, _Swept(folder, data), folder.reports)
