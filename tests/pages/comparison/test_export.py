import io

import pandas
from example_findings import BUSY
from example_results import comparison, result
from record_metrics import metrics

from dpprof.pages.comparison.export import export, table
from dpprof.record.figures.names import PEAK, STEP, ratio_name
from dpprof.record.record import Failure, FailureKind

NAME = 'a "quoted", é'
RUNS = [
    result(step_s=0.1, peak_mib=10, environment={"cpu": "X, Y"}, name=NAME),
    result("DPSGDTrainer", step_s=0.2, peak_mib=30, at_peak={"noise": 30}),
    result("DPSGDTrainer", step_s=0.3, peak_mib=30, at_peak={"noise": 30}, name="again"),
    result("DPGhostClippingTrainer", failure=Failure(FailureKind.ERROR, "two\nlines")),
]


def test_csv_has_every_figure_of_every_run() -> None:
    rows = pandas.read_csv(
        io.StringIO(export(comparison(*RUNS), "csv")), float_precision="round_trip"
    ).set_index("run")
    assert list(rows.index) == [run.name for run in RUNS]
    for run in RUNS[:3]:
        assert run.record is not None
        for name, value in metrics(run.record).items():
            assert rows.loc[run.name, name] == value
        assert rows.loc[run.name, "batch_size"] == 4
    assert rows.loc[NAME, "cpu"] == "X, Y"
    assert rows.loc["again", "vs_standard/latency/step_ms_median_ratio"] == 3
    failed = rows.loc[RUNS[3].name]
    assert (failed["status"], failed["failure"], failed["reason"]) == ("FAILED", "error", "two\nlines")
    assert pandas.isna(failed["latency/step_ms_median"])


def test_disturbed_runs_are_marked_in_every_table() -> None:
    found = comparison(
        result(step_s=0.1, **BUSY),  # type: ignore[arg-type]
        result("DPSGDTrainer", step_s=0.2),
        result(step_s=0.1, batch_size=8),
    )
    rows = pandas.read_csv(io.StringIO(export(found, "csv")), keep_default_na=False)
    assert list(rows["disturbed"]) == ["other processes used 1.0 of 2 processors", "", ""]
    assert table(found)["disturbed"] == ["yes", "yes", ""], "a ratio of both does not compare"


def test_the_table_has_a_row_for_each_cell() -> None:
    columns = table(comparison(*RUNS))
    assert columns["trainer"] == ["StandardTrainer", "DPSGDTrainer", "DPGhostClippingTrainer"]
    assert columns[STEP] == [100, 250, None]
    assert columns[ratio_name(PEAK)] == [1, 3, None]
    assert columns["status"] == ["FINISHED", "FINISHED", "error"]
    assert {len(values) for values in columns.values()} == {3}
