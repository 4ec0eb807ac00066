"""All that is told of a comparison, as plain data: computed once, then shown as page, Markdown, images and in
the terminal."""

from collections.abc import Mapping
from dataclasses import dataclass

from dpprof.record.folder import RunFolder
from dpprof.reports.comparison.comparison import Comparison
from dpprof.reports.comparison.counter_ratios import CounterRow, counter_rows, judgement
from dpprof.reports.comparison.doubts import doubts
from dpprof.reports.comparison.estimates import Pair, pairs
from dpprof.reports.comparison.failures import FailedRun, failed_runs
from dpprof.reports.comparison.findings.finding import Finding
from dpprof.reports.comparison.findings.verdict import verdict
from dpprof.reports.comparison.flops import FlopRow, flop_rows
from dpprof.reports.comparison.growth import Line, growth
from dpprof.reports.comparison.measured import how_measured
from dpprof.reports.comparison.privacy import PrivacyRow, privacy_rows
from dpprof.reports.comparison.rows import ModelRows, Row, rows_by_model
from dpprof.reports.comparison.timelines import Curves, read_timelines
from dpprof.reports.comparison.trainers import TrainerRow, trainer_rows


@dataclass(frozen=True)
class ComparisonData:
    """What the figures say and what stands behind it.

    `findings` is the verdict, `doubts` what to know before trusting it; `judgement` says how the hardware
    counters compare with what is commonly expected; `timelines` holds curves by the name of their cell,
    `damaged` a sentence for each timeline that could not be read.
    """

    comparison: Comparison
    findings: list[Finding[object]]
    doubts: list[str]
    trainers: list[TrainerRow]
    models: list[ModelRows]
    growth: list[Line]
    flops: list[FlopRow]
    privacy: list[PrivacyRow]
    counters: list[CounterRow]
    judgement: list[str]
    pairs: list[Pair]
    failed: list[FailedRun]
    measured: list[dict[str, str]]
    timelines: dict[str, Curves]
    damaged: list[str]

    @property
    def rows(self) -> list[Row]:
        """Every cell's row, in the order of the cells."""
        found = {id(row.cell): row for model in self.models for place in model.places for row in place.rows}
        return [found[id(cell)] for cell in self.comparison.cells]


def compute(
    comparison: Comparison,
    folders: Mapping[tuple[str, str], RunFolder] | None = None,
    foreseen: Comparison | None = None,
) -> ComparisonData:
    """What is told of a comparison. `folders` gives the run folders by source and run name, for the memory
    timelines, where these are wanted; `foreseen` are estimates of a larger model, for the verdict alone.
    """
    timelines, damaged = read_timelines(comparison, folders or {})
    counters = counter_rows(comparison)
    return ComparisonData(
        comparison=comparison,
        findings=verdict(comparison, foreseen),
        doubts=doubts(comparison),
        trainers=trainer_rows(comparison),
        models=rows_by_model(comparison),
        growth=list(growth(comparison)),
        flops=flop_rows(comparison),
        privacy=privacy_rows(comparison),
        counters=counters,
        judgement=judgement(counters),
        pairs=pairs(comparison),
        failed=failed_runs(comparison),
        measured=how_measured(comparison),
        timelines=timelines,
        damaged=damaged,
    )
