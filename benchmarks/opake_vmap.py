"""What does book-keeping save against Opake's per-sample gradients by vmap?

    python benchmarks/opake_vmap.py > docs/results/opake_vmap.md

Opake's loop as a trainer of dpprof beside dpprof's own: step times in rounds that alternate, peaks by the
ledger, and the error of the clipped gradient. Then estimates for an A100, beside what Opake's authors
measured on one. About eight minutes on 2 cores; run it on a machine that is idle.
"""

import sys
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import opacus
import torch
import transformers
from trainers import made_by, rows

from dpprof.config.estimating import EstimatingConfig
from dpprof.config.experiment import ExperimentConfig
from dpprof.config.flat import How, parse_experiment, with_own_options
from dpprof.config.measuring import MeasuringConfig
from dpprof.measure.experiment import run_experiment
from dpprof.measure.gradient_check import Case
from dpprof.record.figures.capacity import needed_bytes
from dpprof.record.figures.step import LogicalStep
from dpprof.record.folder import RunFolder
from dpprof.record.ledger import LedgerResult
from dpprof.vocabulary.formats import markdown_table
from dpprof.vocabulary.units import GIB, MIB

NUM_ROUNDS = 15
OPAKE_PLACE: dict[str, Any] = {"trainer": "opake_loop:OPAKE"}
WAYS: dict[str, dict[str, Any]] = {
    name: {"trainer": name} for name in ("standard", "flat", "bk", "mixed")
} | {"opake": OPAKE_PLACE}
NO_DROPOUT = "resid_pdrop=0,embd_pdrop=0,attn_pdrop=0"
CELLS: dict[str, dict[str, Any]] = {
    "small, batch 8, sequence 256": {"model_size": "small", "batch_size": 8, "seq_len": 256},
    "gpt2 with two layers, batch 2, sequence 64": {
        "workload": "huggingface:gpt2",
        "model_config": f"n_layer=2,{NO_DROPOUT}",
        "batch_size": 2,
        "seq_len": 64,
    },
    "convolutions with GroupNorm, batch 16": {"workload": "opake_loop:convolutions", "batch_size": 16},
}
# Milliseconds and MiB by model, batch and positions: github.com/JetBrains-Research/opake at commit 0d4dc683,
# experiments/clip_breakdown/results_cuda_a100.json: t_nodp, t_clip_stream and t_clip_mb8.
AUTHORS: dict[tuple[str, int, int], dict[str, tuple[float, float | None]]] = {
    ("many_small", 32, 32): {
        "standard": (4.646, None),
        "opake": (51.443, 79.4),
        "opake by 8": (205.510, 34.7),
    },
    ("many_small", 128, 32): {
        "standard": (4.489, None),
        "opake": (50.668, 264.4),
        "opake by 8": (797.024, 37.7),
    },
    ("few_large", 16, 64): {
        "standard": (12.852, None),
        "opake": (56.264, 7026.0),
        "opake by 8": (57.879, 3825.3),
    },
    ("few_large", 64, 64): {
        "standard": (38.412, None),
        "opake": (219.363, 27094.5),
        "opake by 8": (230.053, 3921.3),
    },
}
OUTSIDE_GRADIENT = {"zero_grad", "noise", "optimizer_step"}
LARGE_CELL = {"model_size": "1b", "batch_size": 8, "seq_len": 512}
STEP = """\
Each step takes the same samples from the same first weights, adds noise of multiplier 1 to each parameter of
private ways, and updates by SGD with momentum 0.9.

- `standard`: a backward of the mean loss; torch's SGD.
- `flat`: Opacus's hooks make all per-sample gradients in backward; its noise; torch's SGD.
- `bk`, `mixed`: dpprof's norms and clipped sums, by one backward and by two; its noise; torch's SGD.
- `opake`: `clipped_grad`, which is forward and backward of one sample under `vmap`, and clipping; Opake's
  `gaussian_noise`; Opake's SGD, in place. The loop drops what a step made at the step's end.
- `by 1`: one sample at a time. For `opake` that is `microbatch_size=1`; for `bk` a step of as many batches.

Peaks are those of a whole step. x is the ratio to standard. The error is that of the clipped gradient in
float32, without noise: its L2 distance from a naive per-sample loop in float64, over that one's norm, with a
bound that clips half of the samples or more. On the transformers that of `flat` is in its norms, which sum
the squares of millions of numbers in float32; with sums in float64 it is as small as the others. `vmap` does
not vectorise attention: torch has no rule for its fused CPU kernel, and loops over the samples. Opake's
clipping holds all per-sample gradients, and for one parameter at a time several copies of its own: without
NaN, scaled, and compared for subnormal numbers.
"""
ON_A100 = """\
Opake's authors measured `clipped_grad` alone, without noise and update, on an A100 with 40 GB, in fp32, on
layers of Linear, GELU and LayerNorm: twelve of width 128 (`many_small`) and two of width 4,096 (`few_large`).
Their script and figures are in `experiments/clip_breakdown` of Opake's repository; theirs of `standard` are
forward and backward. dpprof estimates the same models, without a GPU. Its peaks are those of a whole step
with SGD, with what torch's allocator and cuBLAS add, and with the second copy of the weights that the
authors' script keeps. Its time is a lower bound for forward to clipping. It leaves out what Python and
launching kernels take, so that it tells little about `many_small`. `by 8` is `microbatch_size=8`.
"""
LARGE = """\
A whole step in fp32 with SGD, estimated; nobody has measured it. Opake draws its noise on the CPU and moves
it, which the bound leaves out.
"""


def config_of(how: How, microbatch_size: int = 0, **settings: Any) -> ExperimentConfig:
    """An experiment; `microbatch_size` is Opake's."""
    config = parse_experiment(settings, how)
    if microbatch_size:
        config = replace(config, options={**config.options, "microbatch_size": microbatch_size})
    return with_own_options(config).resolve(cuda_available=how is EstimatingConfig)


def configs(settings: dict[str, Any]) -> dict[str, ExperimentConfig]:
    """The ways of a cell by name."""
    of_cell = partial(config_of, MeasuringConfig, device="cpu", momentum=0.9)
    found = {name: of_cell(**settings, **way) for name, way in WAYS.items()}
    alone = settings | {"batch_size": 1, "accumulation_steps": settings["batch_size"]}
    found["bk by 1"] = of_cell(**alone, trainer="bk")
    found["opake by 1"] = of_cell(microbatch_size=1, **settings, **OPAKE_PLACE)
    return found


def errors(planned: dict[str, ExperimentConfig]) -> dict[str, float]:
    """Relative error of each private way's gradient; the naive loop runs once."""
    first = Case(planned["flat"])
    per_sample = first.per_sample_gradients()
    found = {}
    for name, config in planned.items():
        case = Case(config, config.accumulation_steps)
        case.max_grad_norm = first.max_grad_norm
        if case.is_private:
            found[name] = case.error("float32", case.clipped_mean(per_sample))
    return found


def measured(planned: dict[str, ExperimentConfig], num_rounds: int) -> str:
    """A table of a cell's ways against standard training."""
    found, error_of = rows(planned, num_rounds), errors(planned)
    first, lines = found[0], []
    for row in found:
        error = f"{error_of[row.name]:.1e}" if row.name in error_of else ""
        lines.append([*row.beside(first), error])
    header = ["way", "step ms", "± half IQR", "x", "peak MiB", "x", "error"]
    return markdown_table(header, lines, right=1)


def estimated(target: str, **settings: Any) -> tuple[ExperimentConfig, LedgerResult]:
    """An experiment on a GPU, and what its step would take there."""
    config = config_of(EstimatingConfig, target=target, savings=False, **settings)
    with TemporaryDirectory() as folder:
        ledger = run_experiment(config, RunFolder(Path(folder)), lambda _: None).ledger
    assert ledger is not None, "it was estimated"
    return config, ledger


def beside_authors(net: str, batch: int, length: int) -> str:
    """A table of estimates for a case that Opake's authors measured."""
    ways = {name: way for name, way in WAYS.items() if name != "mixed"}
    ways["opake by 8"] = OPAKE_PLACE | {"microbatch_size": 8}
    lines = []
    for name, way in ways.items():
        sizes = {"batch_size": batch, "seq_len": length}
        config, ledger = estimated("A100-40GB", workload=f"opake_loop:{net}", **sizes, **way)
        times = LogicalStep.of(config, ledger).by_phase
        predicted = sum(times[phase].seconds for phase in times.keys() - OUTSIDE_GRADIENT)
        peak = ledger.peak + sum(ledger.from_allocator.values()) + ledger.at_peak["parameters"]
        ms, mib = AUTHORS[net, batch, length].get(name, (None, None))
        said = [f"{figure:.1f}" if figure is not None else "" for figure in (ms, mib)]
        lines.append([name, f"{1e3 * predicted:.2f}", said[0], f"{peak / MIB:.1f}", said[1]])
    header = ["way", "predicted ms", "authors' ms", "peak MiB", "authors' MiB"]
    return markdown_table(header, lines, right=1)


def of_transformer() -> str:
    """A table of estimates for the transformer 1b."""
    lines = []
    for name, way in WAYS.items():
        config, ledger = estimated("A100-80GB", **LARGE_CELL, **way)
        predicted = LogicalStep.of(config, ledger).seconds or 0.0
        needed = needed_bytes(config, ledger)
        lines.append([name, f"{1e3 * predicted:.0f}", f"{ledger.peak / GIB:.1f}", f"{needed / GIB:.1f}"])
    return markdown_table(["way", "predicted ms", "peak GiB", "needs GiB"], lines, right=1)


def main() -> None:
    num_rounds = int(sys.argv[1]) if len(sys.argv) > 1 else NUM_ROUNDS
    print("# Book-keeping against Opake's vmap\n")
    print(made_by("opake_vmap.py", num_rounds, (torch, opacus, transformers)), f"opake {version('opake')}.")
    print(f"\n{STEP}")
    for cell, settings in CELLS.items():
        print(f"## {cell}\n\n{measured(configs(settings), num_rounds)}", flush=True)
    print(f"## On an A100\n\n{ON_A100}")
    for net, batch, length in AUTHORS:
        title = f"### {net}, batch {batch}, {length} positions"
        print(f"{title}\n\n{beside_authors(net, batch, length)}", flush=True)
    print(f"## 1b on an A100 with 80 GB, batch 8, sequence 512\n\n{LARGE}\n{of_transformer()}")


if __name__ == "__main__":
    main()
