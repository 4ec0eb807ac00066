"""The figures of the roofline as texts: the same ones on the page and in the terminal."""

from dpprof.reports.roofline.data import Row
from dpprof.reports.roofline.points import COUNTERS
from dpprof.reports.roofline.roofs import Ceiling, Roof
from dpprof.vocabulary.formats import number
from dpprof.vocabulary.units import GIB, MIB

GIGA, TERA = 1e9, 1e12
NO_CEILINGS = (
    "No ceilings are known, so nothing says how near these figures come to what the machine can do. Measure "
    "them with --passes clean,ledger,ceilings, or give them: "
    "dpprof roofline --copy-gib-per-s X --matmul-tflop-per-s Y."
)
# The table of phases: name of each column, and whether it holds numbers.
COLUMNS = {
    "phase": False,
    "ms": True,
    "MiB": True,
    "GFLOP": True,
    "FLOP/byte": True,
    "GFLOP/s": True,
    "% of matmul": True,
    "GiB/s": True,
    "% of copy": True,
    "lower ceiling": False,
    "bytes, time": False,
}


def cells(row: Row) -> list[str]:
    """A row's texts, one for each column."""
    point = row.point
    return [
        point.phase,
        scaled(point.seconds, 1e-3),
        scaled(point.num_bytes, MIB),
        scaled(point.flops or None, GIGA),
        scaled(point.intensity),
        scaled(point.flop_per_s, GIGA),
        scaled(row.matmul_pct),
        scaled(point.bytes_per_s, GIB),
        scaled(row.copy_pct),
        row.binds or "",
        "DRAM, kernels" if point.source == COUNTERS else "ledger, wall",
    ]


def scaled(value: float | None, unit: float = 1) -> str:
    """A figure in a unit of so many; empty where nothing was measured."""
    return number(None if value is None else value / unit)


def flop_rate(flop_per_s: float) -> str:
    """FLOP per second in the unit that suits it."""
    if flop_per_s >= TERA:
        return f"{scaled(flop_per_s, TERA)} TFLOP/s"
    return f"{scaled(flop_per_s, GIGA)} GFLOP/s"


def origin(ceiling: Ceiling, unit: float) -> str:
    """Where a ceiling comes from."""
    if ceiling.is_given:
        return "given"
    if ceiling.num_runs == 1:
        return "measured"
    return f"the highest of {ceiling.num_runs} runs, the lowest {scaled(ceiling.lowest_per_s, unit)}"


def ceilings(roof: Roof) -> str:
    """A roof in one line."""
    copy, matmul = "copy not known", "matmul not known"
    if roof.copy is not None:
        copy = f"copy {scaled(roof.copy.per_s, GIB)} GiB/s ({origin(roof.copy, GIB)})"
    if roof.matmul is not None:
        matmul = f"matmul {flop_rate(roof.matmul.per_s)} ({origin(roof.matmul, GIGA)})"
    return f"{roof.device}, {roof.precision}: {copy}, {matmul}"
