"""A matplotlib figure as the bytes of a PNG file."""

import io

from matplotlib.figure import Figure
from PIL import Image

# A chart has a few flat colours and their blends at edges: a palette keeps it at a third of the bytes.
_COLORS = 255


def png(figure: Figure) -> bytes:
    """The figure, drawn with a palette of its own colours. The flat ones stay what they are."""
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png")
    image = Image.open(drawn).convert("RGB")
    few = image.quantize(_COLORS, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    kept = io.BytesIO()
    few.save(kept, format="png", optimize=True)
    return kept.getvalue()
