"""Is the allocator's peak that dpprof keeps of a watched script what the C library was asked for?

    python benchmarks/own_loop/malloc_table.py > docs/results/own_loop_malloc.md

Runs `dpprof watch` on each script of `examples/own_loops` with `malloc_counter.c` preloaded (needs gcc), and
compares step by step. Takes three minutes; bytes do not depend on how busy the machine is.
"""

import json
import os
import platform
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from dpprof.record.folder import RunFolder
from dpprof.vocabulary.units import MIB

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples" / "own_loops"
WARMUP, TIMED = 3, 4
LIBRARIES = ["torch", "opacus", "transformers", "trl", "peft", "lightning", "accelerate", "opake"]
COLUMNS = ["script", "timed", "counter", "allocator", "ledger", "allocator off by", "ledger off by"]
TEXT = """# The peaks of watched scripts beside a counter of malloc's

`python benchmarks/own_loop/malloc_table.py`: {versions}.

`counter` counts the bytes that torch's CPU allocator asks the C library for and gives back. It is preloaded
before that library, and knows nothing of dpprof. `allocator` is `memory/peak_allocated`, from the allocator's
events, and `ledger` is the ledger's peak. All three are of the steps that the ledger keeps, each the highest;
`timed` is the counter's of the timed steps, which have nothing attached. The last two columns are the largest
difference from the counter in any step, and of the peaks, in bytes; all others are MiB.
"""
# docs/results/own_loop_malloc.md ends with it.
CAUSES = """
What the ledger lacks is no output of an operator: the 4 or 8 bytes of a Python number while an operator
computes with it (20 bytes in AdamW's step) or until backward (8 bytes for each product with a number: three
in each of GPT-2's GELUs, one for each adapter's scale), and the 5,056 bytes of the random generator's state
that each gradient checkpoint keeps, two of them in TRL's trainer, which checkpoints unasked.
"""


class Counted(NamedTuple):
    """Peaks in bytes: of the timed steps, and of the ledger's by the counter and by dpprof."""

    timed: list[int]
    counter: list[int]
    allocator: list[int]
    ledger: int
    is_sampled: bool

    @property
    def allocator_off(self) -> int:
        """The largest difference of the allocator's events from the counter in a step."""
        return max(abs(a - b) for a, b in zip(self.counter, self.allocator, strict=True))

    @property
    def ledger_off(self) -> int:
        """The difference of the ledger's peak from the counter's."""
        return abs(max(self.counter) - self.ledger)


def built(folder: Path) -> Path:
    """Compile the counter."""
    library = folder / "malloc_counter.so"
    source = HERE / "malloc_counter.c"
    command = [
        "gcc",
        "-O2",
        "-Wall",
        "-shared",
        "-fPIC",
        "-o",
        f"{library}",
        f"{source}",
        "-ldl",
        "-lpthread",
    ]
    subprocess.run(command, check=True)
    return library


def counted(script: Path, library: Path, folder: Path) -> Counted:
    """Watch a script, with the counter."""
    peaks, runs = folder / "peaks.json", folder / "runs"
    command = [
        sys.executable,
        HERE / "counted.py",
        peaks,
        "--warmup-steps",
        WARMUP,
        "--measured-steps",
        TIMED,
    ]
    subprocess.run(
        [*map(str, command), "--runs-dir", str(runs), str(script)],
        env=os.environ | {"LD_PRELOAD": str(library)},
        cwd=folder,
        check=True,
        capture_output=True,
    )
    (config,) = runs.glob("*/*/config.json")
    record = RunFolder(config.parent).read_record()
    assert record is not None
    assert record.ledger is not None
    of_steps = json.loads(peaks.read_text())
    ledger_from = WARMUP + TIMED + 1
    seen = record.memory.step_peak
    return Counted(
        of_steps[WARMUP : WARMUP + TIMED],
        of_steps[ledger_from : ledger_from + len(seen)],
        seen,
        record.ledger.peak,
        bool(record.step_samples),
    )


def row(name: str, one: Counted) -> str:
    """Return a row of the table."""
    timed = "other batches" if one.is_sampled else f"{max(one.timed) / MIB:.3f}"
    peaks = (max(one.counter), max(one.allocator), one.ledger)
    cells = [f"`{name}`", timed, *(f"{peak / MIB:.3f}" for peak in peaks)]
    return "| " + " | ".join([*cells, f"{one.allocator_off:,}", f"{one.ledger_off:,}"]) + " |"


def main() -> None:
    versions = ", ".join(f"{name} {version(name)}" for name in LIBRARIES)
    system = f"{platform.system()}, Python {platform.python_version()}"
    print(TEXT.format(versions=f"{system}, {versions}"))
    print("| " + " | ".join(COLUMNS) + " |")
    print("| --- |" + " ---: |" * (len(COLUMNS) - 1))
    with tempfile.TemporaryDirectory() as path:
        library = built(Path(path))
        for script in sorted(EXAMPLES.glob("*.py")):
            folder = Path(path) / script.stem
            folder.mkdir()
            print(row(script.stem, counted(script, library, folder)), flush=True)
    print(CAUSES, end="")


if __name__ == "__main__":
    main()
