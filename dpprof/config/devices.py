"""GPUs by name, for estimates: plain data, in `devices.json`.

Memory is the device total that torch reports, the lowest figure seen in its out-of-memory messages: less than
the data sheet's, as the driver keeps some. Bandwidth and rates are NVIDIA's data sheets', dense, without
sparsity; no program reaches them.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from dpprof.vocabulary.norm_forms import Balance
from dpprof.vocabulary.units import MIB

# cuBLAS's workspace in torch (aten/src/ATen/cuda/CublasHandlePool.cpp), shared with cuBLASLt.
HOPPER_WORKSPACE_MIB, WORKSPACE_MIB = 32.0, 8.125


class Multiprocessors(NamedTuple):
    """Number of a GPU's multiprocessors, and the threads that each can hold."""

    number: int
    threads: int


@dataclass(frozen=True)
class Device:
    """One GPU, by its data sheet.

    `fp32_tflops` is without TF32, torch's default; `bf16_tflops` is None without matrix units for bf16 and
    TF32.
    `workspace_mib` is cuBLAS's workspace in torch's allocator. `link_gb_per_s` is the sending rate to other
    GPUs, half of a data sheet's rate for both directions: NVLink if present, else PCIe. `l2_mib` is the last
    cache. `host` is the year of the processors that the GPU usually comes with (`issue_times.PROCESSORS`).
    `gpu` is a regular expression for torch's name, without the maker: the same chip with other memory,
    or a part of a GPU (MIG), is another device.
    """

    memory_gib: float
    bandwidth_gb_per_s: float
    fp32_tflops: float
    bf16_tflops: float | None
    link_gb_per_s: float
    l2_mib: int
    processors: Multiprocessors
    host: str
    gpu: str
    source: str
    workspace_mib: float = WORKSPACE_MIB

    def is_named(self, gpu: str) -> bool:
        """Tell whether torch's name for a GPU is this one's."""
        return re.fullmatch(f"(NVIDIA |Tesla )?({self.gpu})", gpu) is not None

    @property
    def tf32_tflops(self) -> float | None:
        """Half the rate of bf16, on every data sheet; None without matrix units for TF32."""
        return self.bf16_tflops and self.bf16_tflops / 2

    @property
    def is_hopper(self) -> bool:
        """True from compute capability 9.0 on."""
        return self.workspace_mib == HOPPER_WORKSPACE_MIB

    @property
    def balance(self) -> Balance:
        """FLOPs per byte; without bf16 units, short types are multiplied as fp32."""
        rates = (self.fp32_tflops, self.bf16_tflops or self.fp32_tflops)
        fp32, short = (1e3 * rate / self.bandwidth_gb_per_s for rate in rates)
        return Balance(fp32, short, self.l2_mib * MIB)


DEVICES = {
    name: Device(**sheet | {"processors": Multiprocessors(*sheet["processors"])})
    for name, sheet in json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8")).items()
}
# A process's memory on a GPU before any tensor: the context and loaded kernels. It depends on driver, torch
# and kernels; 300 to 600 MiB is usual, and this is not measured.
CONTEXT_MIB = 512.0
# What NCCL takes for itself on each of several GPUs: 340 to 410 MB were reported for eight. Not measured.
NCCL_MIB = 400.0
# Block size of torch's CUDA allocator (c10/cuda/CUDACachingAllocator.h, kMinBlockSize).
BLOCK_BYTES = 512
# Assumptions for unlisted devices, to choose between forms of a computation: a CPU core
# does 30 to 100 GFLOP/s at a memory bandwidth of 3 to 10 GB/s; a GPU is like the A100.
CPU_BALANCE, GPU_BALANCE = Balance(10.0, 10.0, 32 * MIB), Balance(12.5, 200.0, 32 * MIB)


def balance_of(device_type: str, gpu: str, target: str = "none") -> Balance:
    """Return the balance of an estimate's target, of the GPU with torch's name `gpu`, or of a CPU."""
    if device_type == "cpu":
        return CPU_BALANCE
    known = DEVICES.get(target) or DEVICES.get(name_of(gpu))
    return known.balance if known else GPU_BALANCE


def name_of(gpu: str) -> str:
    """Return the name in `DEVICES` of the GPU with torch's name `gpu`; `none` if it is not listed."""
    return next((name for name, device in DEVICES.items() if device.is_named(gpu)), "none")
