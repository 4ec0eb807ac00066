import dataclasses
import io
from pathlib import Path

import example_ledger
import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.image import imread

from dpprof.reports import image, levels
from dpprof.reports.colors import CATEGORY_COLORS

LEVELS = levels.compute(example_ledger.timeline(), {"forward": 0.05, "backward": 0.1})
TABLES = example_ledger.tables(example_ledger.record())


def test_the_image_stacks_the_categories_up_to_the_total() -> None:
    (axes,) = image.draw(LEVELS, TABLES, "my run").axes
    bands = axes.collections[: len(LEVELS.mib)]
    assert [band.get_label() for band in bands] == [
        "parameters",
        "activations",
        "summed gradients",
        "per-sample gradients",
        "temporary",
    ]
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


def test_the_file_is_a_png_of_eight_hundred_by_six_hundred(tmp_path: Path) -> None:
    image.write(tmp_path / "chart.png", LEVELS, TABLES, "größer <b>")
    assert imread(io.BytesIO((tmp_path / "chart.png").read_bytes())).shape[:2] == (600, 800)
    assert [path.name for path in tmp_path.iterdir()] == ["chart.png"]


def test_the_legend_names_what_can_be_seen() -> None:
    hardly = LEVELS.mib | {"clip_factors": [0.01] * len(LEVELS.ms)}
    figure = image.draw(dataclasses.replace(LEVELS, mib=hardly), TABLES, "my run")
    (legend,) = figure.legends
    named = [text.get_text() for text in legend.get_texts()]
    assert named == ["parameters", "activations", "summed gradients", "per-sample gradients", "temporary"]
