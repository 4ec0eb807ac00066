"""Measured times of operators on one device: plain data, in a file of its own for each device.

Tables of some GPUs come with the package (`times/`, made by `scripts/distil_times.py` from public
measurements); `dpprof calibrate` writes one of the machine at hand. Each entry names its source.
"""

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from dpprof.config.times_check import check_collectives, check_fields, check_head, check_operators, items
from dpprof.errors import DpprofError
from dpprof.json_files import read_json
from dpprof.vocabulary.precision import BF16, FP32, TF32

SCHEMA = 1
ANY_GPU = "any GPU"
# Name of the file that `dpprof calibrate` writes.
TIMES = "times.json"
# The precisions that it measures, and the types of numbers as tables have them. torch's tensors are float32
# in TF32 too: it is how a GPU multiplies them, if it may.
TYPES = {FP32: "float32", TF32: "tf32", BF16: "bfloat16"}
# Rounds of a whole calibration. Of each operator the shortest time counts.
ROUNDS = 2
# GPUs whose tables have what another one's lacks: other cards with the same chip. The A100 of 40 GB for PCIe
# is none of them, as its power limit slows it down.
LIKE = {
    "H200": ("H100",),
    "A100-80GB": ("A100-80GB-PCIe",),
    "A100-40GB": ("A100-80GB-PCIe", "A100-80GB"),
    "V100-16GB": ("V100-32GB",),
}


@dataclass(frozen=True)
class OperatorTimes:
    """Times of one kind of operator (`vocabulary/operator_kinds.py`) in one type of numbers.

    Each point has the sizes that the kind is looked up by, then the bytes moved, FLOPs and microseconds.
    `spread` is a relative error that a prediction has at least, where the times are not of this very device.
    """

    kind: str
    dtype: str
    source: str
    points: list[list[float]]
    spread: float = 0.0


@dataclass(frozen=True)
class CollectiveTimes:
    """Times of one collective among some ranks: points of bytes (the largest tensor) and microseconds."""

    name: str
    ranks: int
    source: str
    points: list[list[float]]


@dataclass(frozen=True)
class DeviceTimes:
    """Times of one device. `tflops` by type of numbers and `gb_per_s` are the rates that its sizes go by.

    `gpu` is torch's name for it, or the processor's, and `device` cuda or cpu. `launch_us` is the least time
    of an operator on the device; `issue_us` is what Python, autograd and the dispatcher take for an operator
    on the host. Both are 0 where not known. `ranks` are the processes that were calibrated at once; on a CPU
    they share its cores. `versions` are those it was measured with, in so many `rounds`. Others meanwhile
    had `others_pct`, if that is known, in percent of one processor, of the `processors` that the measuring
    process could use; it kept so many `threads` busy. These three are 0 where not known.
    """

    schema: int
    gpu: str
    device: str
    tflops: dict[str, float]
    gb_per_s: float
    operators: list[OperatorTimes]
    collectives: list[CollectiveTimes] = field(default_factory=list)
    launch_us: float = 0.0
    issue_us: float = 0.0
    ranks: int = 1
    versions: dict[str, str] = field(default_factory=dict)
    others_pct: float | None = None
    processors: int = 0
    threads: int = 0
    rounds: int = 0

    @property
    def is_whole(self) -> bool:
        """False if its calibration was cut off, so that its times are rougher."""
        return self.rounds in (0, ROUNDS)

    @classmethod
    def read(cls, path: Path) -> "DeviceTimes":
        """Read a table, as `dpprof calibrate` writes it. Raises DpprofError that names the file.

        A file that is as it was is not read again.
        """
        try:
            found = path.stat()
        except OSError:
            return cls._read(path)
        return cls._read(path, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)

    @classmethod
    @cache
    def _read(cls, path: Path, *state: int) -> "DeviceTimes":
        try:
            data = read_json(path)
            if not isinstance(data, dict) or data.get("schema") != SCHEMA:
                known = data.get("schema") if isinstance(data, dict) else None
                raise DpprofError(f"its schema is {known}, and this dpprof reads {SCHEMA}: calibrate again")
            return cls._of(data)
        except DpprofError as error:
            raise DpprofError(f"{path} is no table of times: {error}") from error

    @classmethod
    def _of(cls, data: dict[str, Any]) -> "DeviceTimes":
        """Build a table from plain data. Raises DpprofError that names the first bad field."""
        types = TYPES.values()
        check_fields(cls, data, "")
        check_head(data, types)
        operators, collectives = [], []
        for where, value in items(data["operators"], "operators"):
            check_operators(check_fields(OperatorTimes, value, where), where, types)
            operators.append(OperatorTimes(**value))
        for where, value in items(data.get("collectives", []), "collectives"):
            check_collectives(check_fields(CollectiveTimes, value, where), where)
            collectives.append(CollectiveTimes(**value))
        return cls(**data | {"operators": operators, "collectives": collectives})

    @classmethod
    def shipped(cls, name: str) -> "DeviceTimes | None":
        """Return the package's table of a listed GPU, or of `any GPU`; None if it has none."""
        path = Path(__file__).with_name("times") / f"{name.replace(' ', '_')}.json"
        return cls.read(path) if path.is_file() else None
