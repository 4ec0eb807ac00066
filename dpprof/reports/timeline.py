"""The memory timeline page: allocated bytes over one training step, phases shaded, the peak named.

`compute` turns the recorded points into plain data, `render` draws them. The page does not know how the
points were measured.
"""

from dataclasses import dataclass
from typing import Any

import jinja2
import plotly.graph_objects as go

from dpprof.metrics import MIB
from dpprof.observe import PHASES
from dpprof.paths import RunFolder, write_text

_MAX_POINTS = 4000
# Okabe and Ito's palette, told apart by colour-blind readers, at a strength that keeps the curve readable.
_COLORS = dict(
    zip(
        PHASES,
        ("#999999", "#56B4E9", "#E69F00", "#E69F00", "#CC79A7", "#F0E442", "#009E73", "#0072B2"),
        strict=True,
    )
)
_templates = jinja2.Environment(loader=jinja2.PackageLoader("dpprof.reports"), autoescape=True)


@dataclass(frozen=True)
class PhaseSpan:
    """One phase of the step: ms from the step's start, and the most MiB allocated during it."""

    name: str
    start_ms: float
    end_ms: float
    peak_mib: float


@dataclass(frozen=True)
class Timeline:
    """What the page shows. `points` are (ms, MiB); every local peak that survives is a recorded one."""

    points: list[tuple[float, float]]
    num_recorded: int
    phases: list[PhaseSpan]
    peak_ms: float
    peak_mib: float
    peak_phase: str | None


def compute(data: dict[str, Any]) -> Timeline:
    """The timeline of the data that the memory pass wrote (seconds and bytes)."""
    points = [(1e3 * s, b / MIB) for s, b in zip(data["seconds"], data["allocated"], strict=True)]
    spans = [(p["name"], 1e3 * p["start"], 1e3 * p["end"]) for p in data["phases"]]
    phases = [PhaseSpan(name, start, end, _peak_within(points, start, end)) for name, start, end in spans]
    peak_ms, peak_mib = max(points, key=lambda p: p[1])
    inside = [p.name for p in phases if p.start_ms <= peak_ms <= p.end_ms]
    return Timeline(
        _thin(points, _MAX_POINTS), len(points), phases, peak_ms, peak_mib, inside[-1] if inside else None
    )


def _peak_within(points: list[tuple[float, float]], start: float, end: float) -> float:
    level = points[0][1]
    peak = None
    for ms, mib in points:
        if ms > end:
            break
        if ms < start:
            level = mib
        else:
            peak = mib if peak is None else max(peak, mib)
    return level if peak is None else max(level, peak)


def _thin(points: list[tuple[float, float]], most: int) -> list[tuple[float, float]]:
    """Keep the lowest and the highest point of each of `most / 2` runs of neighbours, and both ends."""
    if len(points) <= most:
        return points
    size = -(-2 * len(points) // most)
    kept = {0, len(points) - 1}
    for start in range(0, len(points), size):
        run = range(start, min(start + size, len(points)))
        kept.add(max(run, key=lambda i: points[i][1]))
        kept.add(min(run, key=lambda i: points[i][1]))
    return [points[i] for i in sorted(kept)]


def render(timeline: Timeline, title: str, facts: dict[str, str]) -> str:
    """One self-contained HTML page: the chart (plotly inlined) and its figures as tables."""
    chart = _figure(timeline).to_html(
        full_html=False, include_plotlyjs=True, config={"displaylogo": False, "responsive": True}
    )
    template = _templates.get_template("timeline.html")
    return template.render(title=title, facts=facts, timeline=timeline, chart=chart, colors=_COLORS)


def _figure(timeline: Timeline) -> go.Figure:
    figure = go.Figure()
    drawn = set()
    for phase in timeline.phases:
        figure.add_vrect(
            x0=phase.start_ms,
            x1=phase.end_ms,
            fillcolor=_COLORS.get(phase.name, "#999999"),
            opacity=0.3,
            line_width=0,
            layer="below",
            name=phase.name,
            legendgroup=phase.name,
            showlegend=phase.name not in drawn,
        )
        drawn.add(phase.name)
    figure.add_scatter(
        x=[ms for ms, _ in timeline.points],
        y=[mib for _, mib in timeline.points],
        mode="lines",
        line={"shape": "hv", "color": "#222222", "width": 1.5},
        name="allocated",
        showlegend=False,
        hovertemplate="%{x:.3f} ms<br>%{y:.3f} MiB<extra></extra>",
    )
    where = f" in {timeline.peak_phase}" if timeline.peak_phase else ""
    late = timeline.peak_ms > timeline.points[-1][0] / 2
    figure.add_annotation(
        x=timeline.peak_ms,
        y=timeline.peak_mib,
        text=f"peak {timeline.peak_mib:.1f} MiB{where}",
        showarrow=True,
        arrowhead=2,
        ax=-50 if late else 50,
        ay=-24,
        xanchor="right" if late else "left",
        bgcolor="rgba(255,255,255,0.85)",
    )
    figure.update_layout(
        template="plotly_white",
        height=460,
        margin={"l": 60, "r": 16, "t": 30, "b": 40},
        xaxis={"title": "time in the step [ms]", "range": [0, timeline.points[-1][0]]},
        yaxis={"title": "allocated [MiB]", "range": [0, 1.15 * timeline.peak_mib or 1]},
        legend={"orientation": "h", "y": -0.2, "yanchor": "top"},
    )
    return figure


def write_timeline_page(folder: RunFolder) -> None:
    """Render the page of a run folder, if its memory pass left data."""
    data, record = folder.read_timeline(), folder.read_record()
    if data is None or record is None:
        return
    facts = {
        "trainer": record.config["trainer"],
        "model": f"{folder.read_config().model_name}, {record.num_parameters or 0:,} parameters",
        "batch x sequence": f"{record.config['batch_size']} x {record.config['seq_len']}",
        "precision": record.config["precision"],
        "device": record.environment.get("gpu", record.environment.get("cpu", "")),
        "torch / Opacus": f"{record.environment['torch_version']} / {record.environment['opacus_version']}",
    }
    write_text(folder.timeline_page, render(compute(data), folder.name, facts))
