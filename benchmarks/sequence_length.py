"""Cost against sequence length: where the algorithms cross, by formula, by the ledger and by the clock.

    python benchmarks/sequence_length.py docs/results

Writes `sequence_length.md` and `sequence_length.svg`. Measured: a model of hidden size 512 and 1 layer, batch
1, sequences of 128 to 16,384, a step of each trainer in turn; a trainer whose step takes longer than 20 s
does no longer ones. Estimated: 1b, to 65,536, on fake tensors. FLOPs include attention. About a quarter of an
hour on 2 cores; run it on a machine that is idle.
"""

import statistics
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import opacus
import torch

from dpprof.config.experiment import ExperimentConfig
from dpprof.config.flat import to_flat, with_own_options
from dpprof.measure.environment import describe_environment
from dpprof.measure.observe import Observer
from dpprof.measure.passes.ledger import Ledger, keep_ledger
from dpprof.measure.trainers.build import load_trainer
from dpprof.measure.trainers.fake_tensors import fake_tensors
from dpprof.measure.trainers.training import Training
from dpprof.pages import svg
from dpprof.record.figures.ledger import flops_in_theory
from dpprof.record.record import Record
from dpprof.vocabulary.colors import trainer_color, trainer_symbol
from dpprof.vocabulary.formats import markdown_table
from dpprof.vocabulary.trainers import DEFAULT_TRAINERS, STANDARD, short_name
from dpprof.vocabulary.units import MIB

MEASURED = [2**n for n in range(7, 15)]
ESTIMATED = [2**n for n in range(7, 17)]
STEPS, TOO_LONG_S = 5, 20.0
MODEL = "hidden 512, 1 layer"
STYLE = (
    "text{font:12px sans-serif;fill:#222}.axes path,.axes line,line,path{stroke-width:1.5}"
    ".axes path,.axes line{stroke:#999;fill:none}svg{background:#fff}"
)


@dataclass
class Curve:
    """One trainer's figures by sequence length: FLOPs counted and in theory, peak in bytes, seconds."""

    trainer: str
    flops: dict[int, float] = field(default_factory=dict)
    theory: dict[int, float] = field(default_factory=dict)
    peak: dict[int, float] = field(default_factory=dict)
    seconds: dict[int, float] = field(default_factory=dict)


def config_of(trainer: str, positions: int, *, large: bool) -> ExperimentConfig:
    """The experiment: `1b`, or the small model that is measured."""
    size = {"model_size": "1b"} if large else {"model_size": "mini", "num_layers": 1, "hidden_dim": 512}
    config = ExperimentConfig(trainer=trainer, batch_size=1, seq_len=positions, device="cpu", **size)
    return with_own_options(config).resolve(cuda_available=False)


def count(curve: Curve, config: ExperimentConfig) -> None:
    """FLOPs and peak of a step on fake tensors."""
    with fake_tensors(load_trainer(config.trainer)):
        result = keep_ledger(lambda: Training(config), Ledger("cpu"), 1).result
    theory = flops_in_theory(Record(to_flat(config), {}), result)
    attention = sum(row.flops for row in result.traffic if row.operator_class == "attention")
    curve.flops[config.seq_len] = result.moved_in_step.flops
    curve.theory[config.seq_len] = (theory or 0) + attention
    curve.peak[config.seq_len] = result.peak


def clock(found: list[Curve], positions: int) -> None:
    """The median steps, a step of each trainer in turn, after one to warm up."""
    shorter = [n for n in MEASURED if n < positions]
    quick = [c for c in found if not shorter or 0 < c.seconds.get(shorter[-1], 0.0) < TOO_LONG_S]
    trainings = {}
    for curve in quick:
        config = config_of(curve.trainer, positions, large=False)
        trainings[curve.trainer] = Training(config)
        trainings[curve.trainer].run(1, Observer())
    seconds: dict[str, list[float]] = {trainer: [] for trainer in trainings}
    for _ in range(STEPS):
        for trainer, training in trainings.items():
            start = time.perf_counter()
            training.run(1, Observer())
            seconds[trainer].append(time.perf_counter() - start)
    for curve in quick:
        curve.seconds[positions] = statistics.median(seconds[curve.trainer])


def curves(lengths: list[int], *, large: bool) -> list[Curve]:
    """All default trainers, sequence length by sequence length."""
    found = [Curve(trainer) for trainer in DEFAULT_TRAINERS]
    for positions in lengths:
        for curve in found:
            count(curve, config_of(curve.trainer, positions, large=large))
        if not large:
            clock(found, positions)
    return found


def crossing(one: dict[int, float], other: dict[int, float]) -> float | None:
    """The length from which the first curve lies above the second, by straight lines between powers of two;
    None if it never comes to.
    """
    lengths = sorted(one.keys() & other.keys())
    gaps = [one[length] / other[length] - 1 for length in lengths]
    for i in range(1, len(lengths)):
        if gaps[i - 1] <= 0 < gaps[i]:
            share = -gaps[i - 1] / (gaps[i] - gaps[i - 1])
            return lengths[i - 1] + share * (lengths[i] - lengths[i - 1])
    return None


def crossings(found: list[Curve]) -> str:
    """Where each pair crosses, by formula, by the ledger, and by the clock."""
    lines = []
    for one in found:
        for other in found:
            by = [
                crossing(getattr(one, name), getattr(other, name)) for name in ("theory", "flops", "seconds")
            ]
            if by[0] is not None and one is not other:
                pair = f"{short_name(one.trainer)} above {short_name(other.trainer)}"
                lines.append([pair, *("" if at is None else f"{at:,.0f}" for at in by)])
    return markdown_table(
        ["from sequence length", "by formula", "by the ledger", "by the clock"], lines, right=1
    )


def table(found: list[Curve], name: str, scale: float, digits: int) -> str:
    """A row for each sequence length, a column for each trainer; standard's figure and ratios to it."""
    first = next(curve for curve in found if curve.trainer == STANDARD)
    lines = []
    for length, base in getattr(first, name).items():
        values = [getattr(curve, name).get(length) for curve in found if curve is not first]
        ratios = ["" if value is None else f"{value / base:.2f}" for value in values]
        lines.append([f"{length:,}", f"{base / scale:,.{digits}f}", *ratios])
    others = [f"{short_name(curve.trainer)} x" for curve in found if curve is not first]
    return markdown_table(["sequence", "standard", *others], lines, right=0)


def drawn(found: list[Curve], name: str, title: str, top: float) -> str:
    """One chart: the ratio to standard against the sequence length."""
    first = next(curve for curve in found if curve.trainer == STANDARD)
    base = getattr(first, name)
    ratios = {
        curve.trainer: {n: value / base[n] for n, value in getattr(curve, name).items() if n in base}
        for curve in found
    }
    lengths = sorted(base)
    x = svg.Scale(lengths[0], lengths[-1], svg.LEFT, svg.WIDTH - svg.RIGHT, is_log=True)
    most = max(value for values in ratios.values() for value in values.values())
    y = svg.Scale(0.8, most * 1.1, svg.HEIGHT - svg.BOTTOM, svg.TOP, is_log=True)
    parts = [svg.axes(x, y, "sequence length", title, x_ticks=lengths[::2])]
    for trainer, values in ratios.items():
        points = [(x.at(n), y.at(value)) for n, value in values.items()]
        path = "M" + "L".join(f"{a:.1f},{b:.1f}" for a, b in points)
        color = trainer_color(trainer)
        parts.append(svg.element("path", d=path, fill="none", stroke=color))
        parts += [svg.mark(trainer_symbol(trainer), a, b, color) for a, b in points]
        parts.append(svg.label(points[-1][0] - 4, points[-1][1] - 8, short_name(trainer), anchor="end"))
    return f'<g transform="translate(0,{top})">{"".join(parts)}</g>'


def main() -> None:
    folder = Path(sys.argv[1])
    measured, estimated = curves(MEASURED, large=False), curves(ESTIMATED, large=True)
    charts = [
        drawn(measured, "seconds", "step time, x standard (measured)", 0),
        drawn(measured, "flops", "FLOPs, x standard (measured model)", svg.HEIGHT),
        drawn(estimated, "flops", "FLOPs, x standard (1b, estimated)", 2 * svg.HEIGHT),
        drawn(estimated, "peak", "peak memory, x standard (1b, estimated)", 3 * svg.HEIGHT),
    ]
    size = f'viewBox="0 0 {svg.WIDTH} {4 * svg.HEIGHT}" width="{svg.WIDTH}"'
    picture = (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size}><style>{STYLE}</style>{"".join(charts)}</svg>\n'
    )
    (folder / "sequence_length.svg").write_text(picture)
    machine = describe_environment("cpu")
    parts = [
        "# Cost against sequence length\n",
        f"`python benchmarks/sequence_length.py docs/results`: torch {torch.__version__}, Opacus "
        f"{opacus.__version__}, {machine['cpu']}, {torch.get_num_threads()} threads. Batch 1; "
        "beside standard's own figure, ratios to it.\n",
        "![Step time, FLOPs and peak memory against sequence length](sequence_length.svg)\n",
        f"## Where they cross: {MODEL}\n",
        crossings(measured),
        f"## Step time [ms], measured: {MODEL}\n",
        table(measured, "seconds", 1e-3, 1),
        f"## FLOPs [GFLOP], counted: {MODEL}\n",
        table(measured, "flops", 1e9, 2),
        "## Where they cross: 1b\n",
        crossings(estimated),
        "## FLOPs [GFLOP], counted on fake tensors: 1b\n",
        table(estimated, "flops", 1e9, 0),
        "## Peak [MiB], on fake tensors: 1b\n",
        table(estimated, "peak", MIB, 0),
    ]
    (folder / "sequence_length.md").write_text("\n".join(parts))


if __name__ == "__main__":
    main()
