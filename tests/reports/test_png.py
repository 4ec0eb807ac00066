import io

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from dpprof.reports.png import png


def test_a_picture_keeps_its_flat_colours_exactly_and_takes_fewer_bytes() -> None:
    figure = Figure(figsize=(8, 6), dpi=100)
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    colors = [(213, 94, 0), (0, 114, 178), (0, 158, 115), (127, 127, 127)]
    axes.bar(range(4), range(1, 5), color=[tuple(part / 255 for part in color) for color in colors])
    axes.set_title("Some text, whose edges are blends")
    found = png(figure)
    plain = io.BytesIO()
    figure.savefig(plain, format="png")
    image = Image.open(io.BytesIO(found))
    assert image.size == (800, 600)
    found_colors = image.convert("RGB").getcolors()
    assert found_colors is not None
    assert set(colors) <= {color for _, color in found_colors}
    assert len(found) < len(plain.getvalue()) / 2
