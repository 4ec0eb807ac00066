"""Images as PNGs: the memory timeline, and the bars of a comparison."""

import io

import example_ledger
import numpy as np
import pytest
from example_findings import BUSY, run
from example_results import comparison, result
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from PIL import Image

from dpprof.findings import levels
from dpprof.findings.comparison.data import compute
from dpprof.findings.comparison.rows import MEASURES
from dpprof.pages import image
from dpprof.pages.image import bars_of
from dpprof.record.record import Failure, FailureKind
from dpprof.vocabulary.colors import CATEGORY_COLORS

LEVELS = levels.compute(example_ledger.timeline(), {"forward": 0.05, "backward": 0.1})
TABLES = example_ledger.tables(example_ledger.record())
NAMES = ["parameters", "activations", "summed gradients", "per-sample gradients", "temporary"]


def test_the_image_stacks_the_categories_up_to_the_total() -> None:
    LEVELS.mib["clip_factors"] = [0.01] * len(LEVELS.ms)
    figure = image.timeline_of(LEVELS, TABLES, "my run")
    del LEVELS.mib["clip_factors"]
    (axes,) = figure.axes
    bands = axes.collections[: len(LEVELS.mib)]
    assert [band.get_label() for band in bands] == NAMES
    assert [to_hex(np.asarray(band.get_facecolor())[0]) for band in bands] == [
        CATEGORY_COLORS[c] for c in LEVELS.mib
    ]
    tops = [float(np.asarray(band.get_paths()[0].vertices)[:, 1].max()) for band in bands]
    assert tops == pytest.approx([4, 12, 20, 28, 30])
    assert axes.get_title() == "my run"
    texts = [text.get_text() for text in axes.texts]
    assert "30.0 MiB\nper-sample gradients 53 %" in texts
    assert {"forward", "backward"} <= set(texts)
    assert axes.get_xlim() == pytest.approx((0, 150))
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == NAMES, "what can be seen"


def test_a_picture_keeps_its_flat_colours_exactly_and_takes_fewer_bytes() -> None:
    figure = Figure(figsize=(8, 6), dpi=100)
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    colors = [(213, 94, 0), (0, 114, 178), (0, 158, 115), (127, 127, 127)]
    axes.bar(range(4), range(1, 5), color=[tuple(part / 255 for part in color) for color in colors])
    axes.set_title("Some text, whose edges are blends")
    found = image.png(figure)
    plain = io.BytesIO()
    figure.savefig(plain, format="png")
    drawn = Image.open(io.BytesIO(found))
    assert drawn.size == (800, 600)
    found_colors = drawn.convert("RGB").getcolors()
    assert found_colors is not None
    assert set(colors) <= {color for _, color in found_colors}
    assert len(found) < len(plain.getvalue()) / 2


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
