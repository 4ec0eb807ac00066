from example_findings import BUSY, run
from example_results import comparison, result

from dpprof.findings.comparison.rows import MEASURES
from dpprof.pages.comparison.data import compute
from dpprof.pages.image import bars_of
from dpprof.record.record import Failure, FailureKind

FOUND = compute(
    comparison(
        result(step_s=0.1, peak_mib=10, at_peak={"parameters": 4, "activations": 6}),
        result(
            "DPSGDTrainer", step_s=0.3, peak_mib=30, at_peak={"parameters": 10, "per_sample_gradients": 20}
        ),
        result("DPGhostClippingTrainer", failure=Failure(FailureKind.OOM, "x")),
        result(step_s=0.2, peak_mib=500, model_size="small", name="large"),
    )
)


def test_bars_are_as_long_as_their_parts() -> None:
    figure = bars_of(FOUND, MEASURES[0])
    assert figure is not None
    tiny, small = figure.axes
    titles = [axes.get_title(loc="left") for axes in (tiny, small)]
    assert titles == ["tiny: peak memory [MiB]", "small: peak memory [MiB]"]
    drawn = [(bar.get_x(), bar.get_width()) for bar in tiny.patches if bar.get_width()]  # type: ignore[attr-defined]
    assert drawn == [(0, 4), (4, 6), (0, 10), (10, 20)]
    assert {"10.0  1.00 x", "30.0  3.00 x", "oom"} <= {text.get_text() for text in tiny.texts}
    assert [label.get_text() for label in tiny.get_yticklabels()] == ["standard", "flat", "ghost"]
    width, height = figure.get_size_inches()
    assert (width, height > 2) == (10, True), "it grows with its rows"
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == ["parameters", "activations", "per-sample gradients"]


def test_disturbed_step_times_are_marked() -> None:
    found = compute(comparison(run("StandardTrainer", [0.1, 0.1], 10, **BUSY)))
    marked = [
        [text.get_text() for text in figure.axes[0].texts if "1.00 x" in text.get_text()]
        for measure in MEASURES[:2]
        if (figure := bars_of(found, measure)) is not None
    ]
    assert marked == [["10.0  1.00 x"], ["100.0  1.00 x  disturbed"]]


def test_what_nobody_measured_is_not_drawn() -> None:
    assert bars_of(compute(comparison(result(step_s=0.1, peak_mib=10))), MEASURES[2]) is None
    assert bars_of(compute(comparison()), MEASURES[0]) is None
