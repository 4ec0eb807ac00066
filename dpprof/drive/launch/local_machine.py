"""What there is on the machine that this process runs on."""

from dataclasses import dataclass
from pathlib import Path

import psutil

from dpprof.ncu import program


@dataclass(frozen=True)
class LocalNcu:
    """Nsight Compute on this machine."""

    path: str

    def version(self) -> str:
        """The program's version."""
        return program.version(self.path)

    def available_metrics(self) -> frozenset[str]:
        """Base names of the metrics that this machine's GPU has."""
        return program.available_metrics(self.path)

    def to_csv(self, report: Path) -> str:
        """The raw page of a report."""
        return program.to_csv(self.path, report)


class LocalMachine:
    """This machine."""

    def cuda_available(self) -> bool:
        """Whether torch finds a CUDA device. Takes the seconds of importing torch: check options first."""
        import torch

        return torch.cuda.is_available()

    def busy_pct(self) -> float:
        """How busy the processors are: over half a second, which it takes."""
        return psutil.cpu_percent(interval=0.5)

    def ncu(self, device: str) -> LocalNcu:
        """Nsight Compute, if it can be expected to count. Raises CountersUnavailable."""
        return LocalNcu(program.require(device))
