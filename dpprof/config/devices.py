"""GPUs by name, for estimates: plain data.

Memory is what torch reports as the device's total, the lowest figure seen in its out-of-memory messages:
the driver keeps some of what the data sheet says. Bandwidth and rates are those of NVIDIA's data sheets,
dense, without sparsity; no program reaches them.
"""

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Device:
    """One GPU. `fp32_tflops` is without TF32, as torch multiplies by default; `bf16_tflops` is None where the
    matrix units have no bf16. `workspace_mib` is what cuBLAS takes from torch's allocator. `link_gb_per_s` is
    the rate at which it sends to other GPUs, half of what a data sheet gives for both directions: NVLink
    where it has that, else PCIe. `gpu` is a regular expression of the name that torch has for it, without
    the maker's: cards with the same chip but another memory, or a part of a GPU (MIG), are other devices.
    """

    memory_gib: float
    bandwidth_gb_per_s: float
    fp32_tflops: float
    bf16_tflops: float | None
    workspace_mib: float
    link_gb_per_s: float
    gpu: str
    source: str

    def is_named(self, gpu: str) -> bool:
        """Whether torch's name for a GPU is this one's."""
        return re.fullmatch(f"(NVIDIA |Tesla )?({self.gpu})", gpu) is not None

    def tflops(self, precision: str) -> float | None:
        """The rate of matrix products in a precision."""
        return self.fp32_tflops if precision == "fp32" else self.bf16_tflops


# cuBLAS's workspace as torch sets it (aten/src/ATen/cuda/CublasHandlePool.cpp), shared with cuBLASLt.
HOPPER_WORKSPACE_MIB, WORKSPACE_MIB = 32.0, 8.125

DEVICES = {
    "H200": Device(139.8, 4800, 67, 989, HOPPER_WORKSPACE_MIB, 450, "H200", "NVIDIA H200 data sheet, SXM"),
    "H100": Device(
        79.1, 3350, 67, 989, HOPPER_WORKSPACE_MIB, 450, "H100 80GB HBM3", "NVIDIA H100 data sheet, SXM"
    ),
    "A100-80GB": Device(
        79.1, 2039, 19.5, 312, WORKSPACE_MIB, 300, "A100-SXM4?-80GB", "NVIDIA A100 data sheet, SXM 80 GB"
    ),
    "A100-40GB": Device(
        39.4, 1555, 19.5, 312, WORKSPACE_MIB, 300, "A100-(SXM4?|PCIE)-40GB", "NVIDIA A100 data sheet, 40 GB"
    ),
    "L40S": Device(44.4, 864, 91.6, 362, WORKSPACE_MIB, 32, "L40S", "NVIDIA L40S data sheet"),
    "L4": Device(22.0, 300, 30.3, 121, WORKSPACE_MIB, 32, "L4", "NVIDIA L4 data sheet"),
    "V100-32GB": Device(
        31.7, 900, 15.7, None, WORKSPACE_MIB, 150, "V100-SXM[23]-32GB", "NVIDIA V100 data sheet, SXM2 32 GB"
    ),
    "T4": Device(14.5, 320, 8.1, None, WORKSPACE_MIB, 16, "T4", "NVIDIA T4 data sheet"),
    "RTX-4090": Device(
        23.5, 1008, 82.6, 165.2, WORKSPACE_MIB, 32, "(GeForce )?RTX 4090", "NVIDIA Ada GPU architecture paper"
    ),
}
# What a process has on a GPU before it makes a tensor: the context and the kernels loaded so far.
# Driver, torch and loaded kernels decide; 300 to 600 MiB is usual, and this is no measurement.
CONTEXT_MIB = 512.0
# Torch's CUDA allocator hands out multiples of this (c10/cuda/CUDACachingAllocator.h, kMinBlockSize).
BLOCK_BYTES = 512
