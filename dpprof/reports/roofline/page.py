"""The roofline page: the chart, and its figures as tables that can be read without JavaScript."""

from dataclasses import dataclass

from dpprof.reports import html
from dpprof.reports.counter_tables import CounterTables
from dpprof.reports.roofline.chart import roofline_chart
from dpprof.reports.roofline.data import Roofline, Section
from dpprof.reports.roofline.doubts import doubts
from dpprof.reports.roofline.points import COUNTERS, LEDGER, STEP
from dpprof.reports.roofline.roof_lines import LOOKS
from dpprof.reports.roofline.texts import COLUMNS, GIGA, NO_CEILINGS, cells, origin, scaled
from dpprof.vocabulary.units import GIB

_SHOWN_KERNELS = 20


@dataclass(frozen=True)
class RooflineData:
    """What the page shows. `counters` are those of a single run that has them."""

    roofline: Roofline
    doubts: list[str]
    counters: CounterTables | None

    @property
    def only(self) -> Section | None:
        """The section, if there is but one."""
        return self.roofline.sections[0] if len(self.roofline.sections) == 1 else None


def compute(roofline: Roofline, counters: CounterTables | None) -> RooflineData:
    """The page of a roofline and, of a single run, of its hardware counters."""
    return RooflineData(roofline, doubts(roofline), counters)


def render(page: RooflineData) -> str:
    """One self-contained HTML page."""
    return html.render(
        "roofline.html",
        page=page,
        drawn=roofline_chart(page.roofline),
        step_name=STEP,
        columns=COLUMNS,
        no_ceilings=NO_CEILINGS,
        looks=[look.in_words for look in LOOKS],
        giga=GIGA,
        gib=GIB,
        cells=cells,
        scaled=scaled,
        origin=origin,
        from_counters=COUNTERS,
        from_ledger=LEDGER,
        shown_kernels=_SHOWN_KERNELS,
    )
