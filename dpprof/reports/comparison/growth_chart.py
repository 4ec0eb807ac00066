"""The interactive chart of a comparison: growth with the batch and with the sequence."""

import html

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from dpprof.figures.names import PEAK, STEP
from dpprof.reports.colors import trainer_color
from dpprof.reports.comparison.growth import Line
from dpprof.vocabulary.trainers import TRAINERS

_PANELS = ((PEAK, "batch_size"), (STEP, "batch_size"), (PEAK, "seq_len"), (STEP, "seq_len"))
_TITLES = {PEAK: "peak memory [MiB]", STEP: "step time [ms]", "batch_size": "batch", "seq_len": "sequence"}
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross")


def growth_figure(lines: list[Line]) -> go.Figure | None:
    """Measured points joined by lines: a colour and a symbol for each trainer, a dash for each place."""
    panels = [panel for panel in _PANELS if any((line.metric, line.along) == panel for line in lines)]
    if not panels:
        return None
    figure = make_subplots(
        rows=len(panels),
        vertical_spacing=0.26 / len(panels),
        subplot_titles=[f"{_TITLES[metric]} against {_TITLES[along]}" for metric, along in panels],
    )
    # So that a trainer's symbol does not depend on which others are drawn.
    trainers = list(dict.fromkeys([*TRAINERS, *(line.trainer for line in lines)]))
    seen = set()
    for i, panel in enumerate(panels, start=1):
        shown = [line for line in lines if (line.metric, line.along) == panel]
        places = list(dict.fromkeys((line.model, line.place) for line in shown))
        for line in shown:
            place = f"{line.model}, {line.place}"
            figure.add_scatter(
                x=line.x,
                y=line.y,
                row=i,
                col=1,
                name=html.escape(line.trainer),
                legendgroup=line.trainer,
                showlegend=line.trainer not in seen,
                mode="lines+markers",
                line={
                    "color": trainer_color(line.trainer),
                    "dash": _DASHES[places.index((line.model, line.place)) % len(_DASHES)],
                },
                marker={"symbol": _SYMBOLS[trainers.index(line.trainer) % len(_SYMBOLS)], "size": 8},
                hovertemplate=f"{html.escape(line.trainer)}, {html.escape(place)}<br>"
                f"{_TITLES[line.along]} %{{x}}: %{{y:,.6~g}}<extra></extra>",
            )
            seen.add(line.trainer)
        figure.update_xaxes(tickvals=sorted({x for line in shown for x in line.x}), row=i)
        figure.update_yaxes(rangemode="tozero", row=i)
    figure.update_layout(
        template="plotly_white",
        height=120 + 270 * len(panels),
        margin={"l": 56, "r": 12, "t": 34, "b": 40},
        legend={"orientation": "h", "y": -50 / (120 + 270 * len(panels)), "yanchor": "top"},
    )
    return figure
