"""Nets for images of 32 x 32 pixels, as papers on DP training measure them, and the cost of DP there.

    python benchmarks/cifar_nets.py FOLDER > docs/results/cifar_nets.md

Measures a step of each default trainer on this machine's CPU, in rounds that alternate, and estimates their
peaks on a GPU beside published ones; FOLDER keeps the estimates. About three minutes on 2 cores; run it on a
machine that is idle.

Each factory takes the `ExperimentConfig`, as `--workload cifar_nets:resnet18` asks of it with this folder on
`PYTHONPATH`. The ResNets are those of He et al. (2016) with a first convolution of 3 x 3, VGG-11 that of
Simonyan and Zisserman (2015) with one linear layer, and the small net that of Papernot et al. (2021).
BatchNorm is replaced by GroupNorm with at most 32 groups.
"""

import itertools
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import opacus
import torch
from estimate_errors import dpprof
from torch import Tensor, nn
from trainers import Row, made_by, rows, table, with_default_trainers

from dpprof.config.experiment import ExperimentConfig
from dpprof.record.figures.capacity import doubt_bytes
from dpprof.record.folder import RunFolder
from dpprof.vocabulary.formats import markdown_table
from dpprof.vocabulary.trainers import DEFAULT_TRAINERS, short_name

NUM_ROUNDS = 5
MEASURED_NETS = ("small_net", "vgg11", "resnet18")
MEASURED_BATCH, ESTIMATED_BATCH = 16, 256
# Active memory in GB at batch 256, with Adam: Bu, Mao and Xu, "Scalable and Efficient Training of Large
# Convolutional Neural Networks with Differential Privacy", NeurIPS 2022, table 4; one GPU of 16 GB.
PUBLISHED: dict[str, dict[str, float | None]] = {
    "small_net": {"standard": 0.66, "flat": 1.37, "ghost": 2.47, "fast": 0.94, "mixed": 0.79},
    "vgg11": {"standard": 2.54, "flat": None, "ghost": 2.58, "fast": 5.17, "mixed": 2.58},
    "resnet18": {"standard": 3.30, "flat": None, "ghost": 4.00, "fast": 6.32, "mixed": 3.31},
    "resnet34": {"standard": 4.12, "flat": None, "ghost": 4.90, "fast": 7.65, "mixed": 4.13},
}
ABOUT_ESTIMATES = """\
The tables below hold the tensors of one step on a GPU with AdamW, as dpprof estimates them, and what
cuDNN's workspaces may add to the peak ("in doubt", an assumption). "Published" is the active memory that Bu,
Mao and Xu (NeurIPS 2022, table 4) measured with other code on a GPU of 16 GB: their ghost clipping has Gram
matrices for convolutions, which Opacus 1.6 has not, and Opacus of 2022 seems to have held per-sample
gradients twice, which would explain why flat clipping ran out of memory. No GPU was at hand here."""

_CLASSES, _PIXELS = 10, 32
_VGG11 = (64, "pool", 128, "pool", 256, 256, "pool", 512, 512, "pool", 512, 512, "pool")


def _convolution(into: int, out: int, size: int = 3, stride: int = 1) -> list[nn.Module]:
    """A convolution without bias, and its normalisation."""
    return [
        nn.Conv2d(into, out, size, stride=stride, padding=size // 2, bias=False),
        nn.GroupNorm(min(32, out), out),
    ]


class _Block(nn.Module):
    """Two convolutions and a shortcut."""

    def __init__(self, into: int, out: int, stride: int) -> None:
        super().__init__()
        first, second = _convolution(into, out, stride=stride), _convolution(out, out)
        self.inner = nn.Sequential(*first, nn.ReLU(), *second)
        changes = stride != 1 or into != out
        self.shortcut = nn.Sequential(*_convolution(into, out, 1, stride)) if changes else nn.Identity()
        self.relu = nn.ReLU()

    def forward(self, images: Tensor) -> Tensor:
        """Images, shape (B, channels, height, width)."""
        relued: Tensor = self.relu(self.inner(images) + self.shortcut(images))
        return relued


def _resnet(blocks: tuple[int, ...]) -> nn.Module:
    layers = [*_convolution(3, 64), nn.ReLU()]
    into = 64
    for stage, num_blocks in enumerate(blocks):
        out = 64 * 2**stage
        strides = [1 if stage == 0 else 2] + [1] * (num_blocks - 1)
        layers += [_Block(into if i == 0 else out, out, stride) for i, stride in enumerate(strides)]
        into = out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(into, _CLASSES))


def _workload(model: nn.Module, config: ExperimentConfig) -> tuple[Any, ...]:
    def batches() -> Iterator[tuple[Tensor, Tensor]]:
        while True:
            images = torch.randn(config.batch_size, 3, _PIXELS, _PIXELS)
            yield images, torch.randint(_CLASSES, (config.batch_size,))

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(outputs, targets, reduction="none")

    return model, batches(), loss


def resnet18(config: ExperimentConfig) -> tuple[Any, ...]:
    """ResNet-18, 11.2M parameters."""
    return _workload(_resnet((2, 2, 2, 2)), config)


def resnet34(config: ExperimentConfig) -> tuple[Any, ...]:
    """ResNet-34, 21.3M parameters."""
    return _workload(_resnet((3, 4, 6, 3)), config)


def vgg11(config: ExperimentConfig) -> tuple[Any, ...]:
    """VGG-11, 9.2M parameters."""
    layers: list[nn.Module] = []
    into = 3
    for out in _VGG11:
        if isinstance(out, int):
            layers += [*_convolution(into, out), nn.ReLU()]
            into = out
        else:
            layers.append(nn.MaxPool2d(2))
    return _workload(nn.Sequential(*layers, nn.Flatten(), nn.Linear(into, _CLASSES)), config)


def small_net(config: ExperimentConfig) -> tuple[Any, ...]:
    """Six convolutions and two linear layers, 0.55M parameters."""
    layers: list[nn.Module] = []
    for into, out in itertools.pairwise((3, 32, 64, 128)):
        layers += [
            nn.Conv2d(into, out, 3, padding=1),
            nn.Tanh(),
            nn.Conv2d(out, out, 3, padding=1),
            nn.Tanh(),
        ]
        layers.append(nn.MaxPool2d(2))
    layers += [nn.Flatten(), nn.Linear(2048, 128), nn.Tanh(), nn.Linear(128, _CLASSES)]
    return _workload(nn.Sequential(*layers), config)


def measured(net: str) -> list[Row]:
    """Every default trainer on the CPU."""
    settings = {"workload": f"cifar_nets:{net}", "batch_size": MEASURED_BATCH}
    return rows(with_default_trainers(settings), NUM_ROUNDS)


def estimated(folder: Path, net: str) -> str:
    """Every default trainer's peak on a GPU, beside the published one."""
    grid = ["--batch-sizes", str(ESTIMATED_BATCH), "--seq-lens", "32", "--optimizer", "adamw"]
    dpprof(folder, "estimate", net, "--workload", f"cifar_nets:{net}", "--target", "V100-32GB", *grid)
    lines: list[list[str]] = []
    standard = 0
    for trainer in DEFAULT_TRAINERS:
        (path,) = (folder / "runs" / net).glob(f"{trainer}_*")
        record = RunFolder(path).read_record()
        assert record is not None
        assert record.ledger is not None
        peak, doubt = record.ledger.peak, doubt_bytes(record.ledger) or 0
        standard = standard or peak
        name = short_name(trainer)
        paper = PUBLISHED[net].get(name, "")
        said = "out of memory" if paper is None else f"{paper}"
        lines.append([name, f"{peak / 1e9:.2f}", f"{peak / standard:.2f}", f"{doubt / 1e9:.2f}", said])
    return markdown_table(["trainer", "tensors GB", "x", "in doubt GB", "published GB"], lines, right=1)


def main() -> None:
    folder = Path(sys.argv[1]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    here = str(Path(__file__).parent)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH", "")]))
    print("# What each algorithm costs on nets for small images\n")
    print(made_by("cifar_nets.py", NUM_ROUNDS, (torch, opacus)))
    print("x is the ratio to standard. Images have 32 x 32 pixels, fp32.\n")
    for net in MEASURED_NETS:
        print(f"## {net}, batch {MEASURED_BATCH}, measured on the CPU\n\n{table(measured(net))}", flush=True)
    print(f"{ABOUT_ESTIMATES}\n")
    for net in PUBLISHED:
        print(f"## {net}, batch {ESTIMATED_BATCH}, estimated for a GPU\n")
        print(estimated(folder, net), flush=True)


if __name__ == "__main__":
    main()
