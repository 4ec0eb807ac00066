"""Images as PNGs: the memory timeline, and the bars of a comparison."""

import io

import example_ledger
import numpy as np
import pytest
from example_results import comparison, result
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from PIL import Image

from dpprof.findings import levels
from dpprof.findings.comparison.data import compute
from dpprof.pages import image
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
