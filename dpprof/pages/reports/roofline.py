"""The roofline page: the chart, and tables of its figures."""

from collections.abc import Iterator
from pathlib import Path

from dpprof.findings import counter_tables
from dpprof.findings.comparison.comparison import Comparison, compare
from dpprof.findings.counter_tables import CounterTables
from dpprof.findings.roofline import COUNTERS, LEDGER, STEP, Ceiling, Roofline, RooflineRow, compute, doubts
from dpprof.pages import counters as counter_parts
from dpprof.pages import document as doc
from dpprof.pages import html
from dpprof.pages.report import page_report
from dpprof.pages.roofline_chart import GIGA, LOOKS, roofline_chart, scaled
from dpprof.record.figures.names import COPY, KERNEL_MS, MOVED
from dpprof.record.figures.results import Result
from dpprof.record.files import write_text
from dpprof.record.folder import SweepFolder
from dpprof.record.record import Record
from dpprof.vocabulary.formats import number
from dpprof.vocabulary.units import GIB, MIB

_NO_CEILINGS = (
    "No ceilings are known to compare with. Measure them with --passes clean,ledger,ceilings, or give them: "
    "dpprof roofline --copy-gib-per-s X --matmul-tflop-per-s Y."
)
_CEILINGS = (
    "Ceilings are what a large copy and a large matrix product reach on the device: left of where they meet "
    "the copy's is lower, right of it the product's. What stays far below both is held up by something else: "
    "small operators, launches, the host. FLOPs are those of matrix products, convolutions and attention, "
    "causal attention counted in full."
)
_SOURCES = {
    LEDGER: (
        "ledger, wall: bytes that operators request if nothing stayed in a cache, in the time of unobserved "
        "steps, with gaps between kernels. Caches can lift such a point above the roof."
    ),
    COUNTERS: (
        "DRAM, kernels: bytes that hardware counters saw at the device's memory, in the time of kernels "
        "alone, so that the rate is higher than in training."
    ),
}
_SHORT_SOURCES = {LEDGER: "ledger, wall", COUNTERS: "DRAM, kernels"}
PHASE_COLUMNS: list[doc.ColumnOf] = [
    ("phase", str, lambda row: row.point.phase),
    ("ms", doc.figure, lambda row: scaled(row.point.seconds, 1e-3)),
    ("MiB", doc.figure, lambda row: scaled(row.point.num_bytes, MIB)),
    ("GFLOP", doc.figure, lambda row: scaled(row.point.flops or None, GIGA)),
    ("FLOP/byte", doc.figure, lambda row: scaled(row.point.intensity)),
    ("GFLOP/s", doc.figure, lambda row: scaled(row.point.flop_per_s, GIGA)),
    ("% of matmul", doc.figure, lambda row: scaled(row.matmul_pct)),
    ("GiB/s", doc.figure, lambda row: scaled(row.point.bytes_per_s, GIB)),
    ("% of copy", doc.figure, lambda row: scaled(row.copy_pct)),
    ("lower ceiling", str, lambda row: row.binds or ""),
    ("bytes, time", str, lambda row: _SHORT_SOURCES[row.point.source]),
]
_COUNTED = (
    "Hardware counters were read in one step under Nsight Compute, which runs every kernel alone. A rate is "
    "the sum of bytes over the sum of kernel times. L1 counts what global loads and stores request."
)

_SHOWN_KERNELS = 20


def page(roofline: Roofline, counters: CounterTables | None = None) -> doc.Document:
    """Return the page of a roofline and, for a single run, of its hardware counters."""
    parts: list[doc.Part] = [*_lead(roofline), *_chart(roofline)]
    sources = {row.point.source for section in roofline.sections for row in section.rows}
    if any(roof.copy or roof.matmul for roof in roofline.roofs):
        parts += [doc.Heading("Ceilings"), _ceilings(roofline)]
    elif roofline.sections:
        parts.append(doc.Sentence(_NO_CEILINGS, "note"))
    if roofline.sections:
        parts += [doc.Heading("Phases"), _phases(roofline), doc.Sentence(_CEILINGS, "note")]
    parts += [doc.Sentence(said, "note") for source, said in _SOURCES.items() if source in sources]
    if counters is not None:
        parts += [*counter_parts.parts(counters, _SHOWN_KERNELS), doc.Sentence(_COUNTED, "note")]
    return doc.Document(f"{roofline.name}: roofline", parts)


def _lead(roofline: Roofline) -> Iterator[doc.Part]:
    """Yield the figures of a single run's step, doubts, and what was left out."""
    if len(roofline.sections) == 1 and (step := roofline.sections[0].rows[-1]).point.phase == STEP:
        point = step.point
        text = [f"A step moves {scaled(point.num_bytes, MIB)} MiB"]
        if point.seconds:
            text.append(f" in {scaled(point.seconds, 1e-3)} ms: {scaled(point.bytes_per_s, GIB)} GiB/s")
        if step.copy_pct is not None:
            text.append(f", {number(step.copy_pct)} % of what a copy reaches")
        if point.flop_per_s:
            text.append(f", and {scaled(point.flop_per_s, GIGA)} GFLOP/s")
        if step.matmul_pct is not None:
            text.append(f", {number(step.matmul_pct)} % of what a matrix product reaches")
        yield doc.Sentence(doc.Styled(f"{''.join(text)}."))
    if roofline.steps:
        yield doc.Sentence(roofline.steps, "note")
    for doubt in doubts(roofline):
        yield doc.Sentence(doubt, "warning")
    for reason in roofline.left_out:
        yield doc.Sentence(f"{reason}.", "note")


def _chart(roofline: Roofline) -> list[doc.Part]:
    drawn = roofline_chart(roofline)
    if drawn is not None:
        return [drawn]
    no_chart = doc.Sentence("No phase has both FLOPs and a time, so there is no chart to draw.", "note")
    return [no_chart] if roofline.sections else []


def _ceilings(roofline: Roofline) -> doc.Table:
    columns: doc.Columns = [
        ("device", str),
        ("precision", str),
        ("copy [GiB/s]", doc.figure),
        ("from", str),
        ("matmul [GFLOP/s]", doc.figure),
        ("from", str),
        ("they meet at [FLOP/byte]", number),
        ("in the chart", str),
    ]
    rows = [
        (
            roof.device,
            roof.precision,
            *_ceiling(roof.copy, GIB),
            *_ceiling(roof.matmul, GIGA),
            roof.ridge,
            LOOKS[i % len(LOOKS)].in_words,
        )
        for i, roof in enumerate(roofline.roofs)
    ]
    return doc.table("", columns, rows, name="ceilings")


def _ceiling(ceiling: Ceiling | None, unit: float) -> tuple[str, str]:
    """Return a ceiling and its source."""
    if ceiling is None:
        return "", "not known"
    origin = "measured" if ceiling.num_runs else "given"
    if ceiling.num_runs > 1:
        origin = f"the highest of {ceiling.num_runs} runs, the lowest {scaled(ceiling.lowest_per_s, unit)}"
    return scaled(ceiling.per_s, unit), origin


def _phases(roofline: Roofline) -> doc.Table:
    rows: list[RooflineRow] = []
    groups = {}
    for section in roofline.sections:
        several = f" (medians of {section.num_runs} runs)" if section.num_runs > 1 else ""
        groups[len(rows)] = f"{section.label}{several}"
        rows += section.rows
    bold = [i for i, row in enumerate(rows) if row.point.phase == STEP]
    return doc.table_of(rows, PHASE_COLUMNS, name="phases", bold=bold, groups=groups)


def counters_of(record: Record | None) -> CounterTables | None:
    """Return the tables of a run's hardware counters, if it has any."""
    if record is None or record.counters is None:
        return None
    return counter_tables.compute(record.counters, record.ledger)


def run_roofline(result: Result) -> doc.Document | None:
    """Return a run's page; None unless it has hardware counters, or a ledger and ceilings."""
    comparison = compare(result.name, {result.name: [result]})
    if not _can_be_drawn(comparison):
        return None
    return page(compute(comparison), counters_of(result.record))


def write_sweep_roofline(folder: SweepFolder, comparison: Comparison) -> list[Path]:
    """Write a sweep's page if any of its runs can be drawn, else remove an earlier one. Returns the file."""
    if not _can_be_drawn(comparison):
        folder.roofline_page.unlink(missing_ok=True)
        return []
    write_text(folder.roofline_page, html.page(page(compute(comparison))))
    return [folder.roofline_page]


def _can_be_drawn(comparison: Comparison) -> bool:
    """Tell whether any run has hardware counters, or a ledger with ceilings to compare with."""
    return any(
        KERNEL_MS in run.figures or (COPY in run.figures and MOVED in run.figures)
        for cell in comparison.cells
        for run in cell.representative
    )


REPORTS = (page_report("roofline.html", version=4, page=run_roofline),)
