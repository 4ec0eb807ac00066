"""Distils public measurements of GPU operators into the tables of times that come with dpprof.

    python scripts/distil_times.py DATA_FOLDER

DATA_FOLDER has `gemm_fp32.csv` and `rowwise_fp32.csv` (NeuSight), `gemm_bf16.csv` and `nccl_half.csv`
(AIConfigurator), and `DeepBench_NV_V100.xlsx`, that of the P100 and that of the T4 (DeepBench,
results/train), which openpyxl reads.

One table for each GPU goes to `dpprof/config/times/`, and one for `any GPU`, whose times are those of all of
them, scaled to one TFLOP/s and one GB/s. It has no convolutions, as GPUs with matrix units for fp32 have
other kernels than these three. Points are thinned: of each kind those that lie farthest from all that are
kept.
"""

import csv
import json
import math
import re
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dpprof.config.device_times import SCHEMA
from dpprof.config.devices import DEVICES

NEUSIGHT = (
    "NeuSight (Lee, Phanishayee, Mahajan, ASPLOS 2025), MIT licence, github.com/sitar-lab/NeuSight 6945927"
)
AICONFIGURATOR = "AIConfigurator (NVIDIA), Apache-2.0, github.com/ai-dynamo/aiconfigurator 095f58a"
DEEPBENCH = (
    "DeepBench (Baidu), Apache-2.0, github.com/baidu-research/DeepBench da81ba7, results/train: cuDNN 7.6 on "
    "a V100 of a DGX-1 and on a T4, cuDNN 6 on a P100"
)
VERSIONS = {"float32": "torch 2.1, CUDA 12.1"}
CONVOLUTIONS = ("convolution", "convolution_of_inputs", "convolution_of_weights")
TO_KEEP = {"product": 400, "elementwise": 24, "softmax": 48, "layer_norm": 48} | dict.fromkeys(
    CONVOLUTIONS, 100
)
# Names in the sources: ours, and the data sheet's TFLOP/s in fp32 and bf16, and GB/s.
GPUS: dict[str, tuple[str, float, float | None, float]] = {
    "NVIDIA H100 80GB HBM3": ("H100", 67, 989, 3350),
    "NVIDIA H200": ("H200", 67, 989, 4800),
    "NVIDIA A100 80GB PCIe": ("A100-80GB-PCIe", 19.5, 312, 1935),
    "NVIDIA A100-SXM4-80GB": ("A100-80GB", 19.5, 312, 2039),
    "NVIDIA A100-PCIE-40GB": ("A100-40GB-PCIe", 19.5, 312, 1555),
    "Tesla V100-PCIE-32GB": ("V100-32GB", 14, None, 900),
    "NVIDIA L4": ("L4", 30.3, 121, 300),
    "NVIDIA L40S": ("L40S", 91.6, 362, 864),
    "Tesla T4": ("T4", 8.1, None, 320),
    "NVIDIA B200": ("B200", 75, 2250, 8000),
    "Tesla P100-PCIE-16GB": ("P100", 9.3, None, 732),
}
# NeuSight's names of operators, and how many tensors each reads and writes; a `u` takes one operand.
OPERANDS = {"add": 3, "mul": 3, "div": 3, "addu": 2, "mulu": 2, "divu": 2, "tanh": 2, "relu": 2, "gelu": 2}
DEEPBENCH_GPUS = {"V100": "Tesla V100-PCIE-32GB", "P100": "Tesla P100-PCIE-16GB", "T4": "Tesla T4"}
ROWWISE = {"softmax": ("softmax", 2), "ln": ("layer_norm", 2)}
ANY = "any GPU"
Points = dict[tuple[str, str], list[list[float]]]


def main() -> None:
    """Write the tables."""
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = Path(sys.argv[1])
    found: dict[str, Points] = defaultdict(lambda: defaultdict(list))
    for gpu, kind, dtype, point in measured(folder):
        found[gpu][kind, dtype].append(point)
    tables = {gpu: table(gpu, points, collectives(folder, gpu)) for gpu, points in found.items()}
    to = Path(__file__).parents[1] / "dpprof" / "config" / "times"
    to.mkdir(exist_ok=True)
    for gpu, made in tables.items():
        write(to / f"{GPUS[gpu][0]}.json", made)
    write(to / f"{ANY.replace(' ', '_')}.json", pooled(found))


def measured(folder: Path) -> Iterator[tuple[str, str, str, list[float]]]:
    """Yield each operator's GPU, kind, type of numbers, and point."""
    for row in csv.DictReader((folder / "gemm_fp32.csv").open()):
        yield row["device"], "product", "float32", product(row, row["b"], 4)
    for row in csv.DictReader((folder / "gemm_bf16.csv").open()):
        yield row["device"], "product", "bfloat16", product(row, "1", 2)
    for row in csv.DictReader((folder / "rowwise_fp32.csv").open()):
        rows, columns, us = float(row["rows"]), float(row["columns"]), 1e3 * float(row["ms"])
        if row["op"] in OPERANDS:
            num_bytes = 4 * rows * columns * OPERANDS[row["op"]]
            yield row["device"], "elementwise", "float32", [num_bytes, num_bytes, 0, us]
        elif row["op"] in ROWWISE:
            kind, times = ROWWISE[row["op"]]
            yield row["device"], kind, "float32", [rows, columns, 4 * rows * columns * times, 0, us]
    for name, gpu in DEEPBENCH_GPUS.items():
        for kind, point in convolutions(folder / f"DeepBench_NV_{name}.xlsx"):
            yield gpu, kind, "float32", point


def product(row: dict[str, str], batch: str, itemsize: int) -> list[float]:
    """A matrix product's sizes, bytes, FLOPs and microseconds."""
    b, m, n, k = (float(each) for each in (batch, row["m"], row["n"], row["k"]))
    num_bytes = itemsize * b * (m * k + k * n + m * n)
    return [b, m, n, k, num_bytes, 2 * b * m * n * k, 1e3 * float(row["ms"])]


def convolutions(path: Path) -> Iterator[tuple[str, list[float]]]:
    """Yield kinds and points of a workbook's convolutions in fp32: forward, and backward for each gradient.

    Backward is given the gradient, the inputs and the weights, whichever it makes.
    """
    from openpyxl import load_workbook  # type: ignore[import-untyped]

    rows = load_workbook(path, data_only=True)["Results FP32"].iter_rows(values_only=True)
    names: dict[str, int] = {}
    for row in rows:
        if "wrt Parameters (msec)" in row:
            names = {str(name).split()[0]: place for place, name in enumerate(row) if name}
            first = row.index("Forward (msec)")
        elif names and not isinstance(row[names["W"]], int):
            if any(row):
                return
        elif names:
            width, height, inputs, batch, outputs, across, down, columns, lines = (
                row[names[name]] for name in ("W", "H", "C", "N", "K", "S", "R", "P", "Q")
            )
            area, positions = across * down, batch * columns * lines
            given, weights = inputs * batch * width * height, inputs * outputs * area
            made = outputs * positions
            moved = (given + weights + made, 2 * given + weights + made, given + 2 * weights + made)
            for kind, num, ms in zip(CONVOLUTIONS, moved, row[first : first + 3], strict=True):
                if isinstance(ms, int | float):
                    flops = 2 * made * inputs * area
                    yield kind, [area, positions, outputs, inputs, 4 * num, flops, 1e3 * ms]


def collectives(folder: Path, gpu: str) -> list[dict[str, Any]]:
    """A GPU's collectives, in bytes of the whole tensor."""
    points: dict[tuple[str, int], list[list[float]]] = defaultdict(list)
    for row in csv.DictReader((folder / "nccl_half.csv").open()):
        if row["device"] == gpu:
            points[row["op"], int(row["num_gpus"])].append(
                [2 * float(row["elements"]), 1e3 * float(row["ms"])]
            )
    return [
        {"name": name, "ranks": ranks, "source": AICONFIGURATOR, "points": rounded(each)}
        for (name, ranks), each in points.items()
    ]


def table(gpu: str, points: Points, communication: list[dict[str, Any]]) -> dict[str, Any]:
    """One GPU's table."""
    _, fp32, bf16, gb_per_s = GPUS[gpu]
    return {
        "schema": SCHEMA,
        "gpu": gpu,
        "device": "cuda",
        "tflops": {"float32": fp32} | ({"bfloat16": bf16} if bf16 else {}),
        "gb_per_s": gb_per_s,
        "operators": [operators(kind, dtype, each) for (kind, dtype), each in points.items()],
        "collectives": communication,
        "versions": VERSIONS if ("product", "float32") in points else {},
    }


def operators(kind: str, dtype: str, points: list[list[float]], spread: float = 0.0) -> dict[str, Any]:
    """One kind's entry."""
    source = NEUSIGHT if dtype == "float32" else AICONFIGURATOR
    if kind in CONVOLUTIONS:
        source = DEEPBENCH
    kept = rounded(thinned(points, TO_KEEP[kind]))
    return {"kind": kind, "dtype": dtype, "source": source, "spread": round(spread, 3), "points": kept}


def thinned(points: list[list[float]], number: int) -> list[list[float]]:
    """Keep the points farthest from each other, by the logarithms of their sizes."""
    sizes = [[math.log(max(each, 1)) for each in point[:-3]] for point in points]
    kept, distance = [0], [math.inf] * len(points)
    while len(kept) < min(number, len(points)):
        last = sizes[kept[-1]]
        distance = [min(d, math.dist(last, each)) for d, each in zip(distance, sizes, strict=True)]
        kept.append(max(range(len(points)), key=distance.__getitem__))
    return [points[index] for index in sorted(kept)]


def pooled(found: dict[str, Points]) -> dict[str, Any]:
    """The table of any GPU: with times as on one of 1 TFLOP/s and 1 GB/s per TFLOP/s of its balance."""
    entries = []
    for key in sorted({key for points in found.values() for key in points if key[0] not in CONVOLUTIONS}):
        scaled = {
            gpu: [nominal(gpu, key[1], p) for p in points[key]]
            for gpu, points in found.items()
            if key in points
        }
        together = [point for points in scaled.values() for point in points]
        entries.append(operators(*key, together, spread_between(scaled)))
    rates = {"float32": 1.0, "bfloat16": 1.0}
    return {
        "schema": SCHEMA,
        "gpu": ANY,
        "device": "cuda",
        "tflops": rates,
        "gb_per_s": 1.0,
        "operators": entries,
    }


def nominal(gpu: str, dtype: str, point: list[float]) -> list[float]:
    """A point with the time that its efficiency would give at 1 TFLOP/s and 1 GB/s."""
    *sizes, num_bytes, flops, us = point
    efficiency = serial_us(gpu, dtype, num_bytes, flops) / us
    return [*sizes, num_bytes, flops, (num_bytes / 1e3 + flops / 1e6) / efficiency]


def serial_us(gpu: str, dtype: str, num_bytes: float, flops: float) -> float:
    """The microseconds of moving the bytes, then computing the FLOPs."""
    _, fp32, bf16, gb_per_s = GPUS[gpu]
    rate = fp32 if dtype == "float32" else bf16
    assert rate, "measured in a type that it has"
    return num_bytes / gb_per_s / 1e3 + flops / rate / 1e6


def spread_between(scaled: dict[str, list[list[float]]]) -> float:
    """How far GPUs lie apart: the largest relative distance of a GPU's median efficiency from all others'."""

    def efficiency(points: Sequence[list[float]]) -> float:
        return statistics.median((p[-3] / 1e3 + p[-2] / 1e6) / p[-1] for p in points)

    medians = {gpu: efficiency(points) for gpu, points in scaled.items()}
    if len(medians) < 2:
        return 0.5
    return max(
        abs(math.log(own / statistics.median(other for gpu2, other in medians.items() if gpu2 != gpu)))
        for gpu, own in medians.items()
    )


def rounded(points: list[list[float]]) -> list[list[float]]:
    """Whole sizes, and times of five digits."""
    return [[*map(round, point[:-1]), float(f"{point[-1]:.5g}")] for point in points]


def write(path: Path, made: dict[str, Any]) -> None:
    """Write a table, a point a line."""
    text = json.dumps(made, indent=1)
    path.write_text(joined(text) + "\n")
    assert json.loads(path.read_text()) == made
    assert made["gpu"] == ANY or GPUS[made["gpu"]][0] == path.stem or path.stem in DEVICES


def joined(text: str) -> str:
    """Put the numbers of each innermost list on one line."""
    return re.sub(r"\[\s+([-\d.e,+\s]+?)\s+\]", lambda m: "[" + " ".join(m[1].split()) + "]", text)


if __name__ == "__main__":
    main()
