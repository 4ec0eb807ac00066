"""Hugging Face families at two layers: does every trainer train them, right, and with the estimated peak?

    python benchmarks/model_families.py FOLDER > docs/results/model_families.md

For each family a grid of estimates and a sweep with all passes and the gradient check, every trainer. What
FOLDER has already is kept. About half an hour on 2 cores.
"""

import contextlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import opacus
import torch
import transformers

from dpprof.errors import DpprofError
from dpprof.record.figures.verdicts import GRADIENT_CHECK, verdicts
from dpprof.record.folder import RunFolder
from dpprof.record.record import Record
from dpprof.vocabulary.formats import markdown_table
from dpprof.vocabulary.trainers import TRAINERS, short_name

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from example_families import SMALL  # the models that the tests train

PASSES = "clean,memory,ledger,trace,gradient_check"


def measured(folder: Path, family: str) -> None:
    """The estimates and the sweep of a family."""
    own = [
        item for name, value in SMALL[family].items() for item in (f"--{name.replace('_', '-')}", str(value))
    ]
    grid = ["--workload", f"huggingface:{family}", *own, "--trainers", "every", "--batch-sizes", "3"]
    grid += ["--seq-lens", "16", "--device", "cpu"]
    short = ["--warmup-steps", "1", "--measured-steps", "2", "--passes", PASSES]
    dpprof(folder, "estimate", f"estimated-{family}", *grid)
    dpprof(folder, "sweep", f"measured-{family}", *grid, *short)


def dpprof(folder: Path, command: str, name: str, *arguments: str) -> None:
    """Run a command in the folder, which has an MLflow store of its own; what failed is told later."""
    named = ["--sweep-name", name, "--resume", str((folder / "runs" / name).exists()).lower()]
    line = [sys.executable, "-m", "dpprof", command, *arguments, *named]
    subprocess.run(line, cwd=folder, stdout=sys.stderr, check=False)


def record_of(sweep: Path, trainer: str, family: str) -> Record | None:
    """What an experiment left, if it finished."""
    folder = RunFolder(sweep / f"{trainer}_{family}_bs3_seq16")
    with contextlib.suppress(DpprofError):
        return folder.read_record()
    return None


def why_not(sweep: Path, trainer: str, family: str) -> str:
    """The error of an experiment that failed, in a line."""
    folder = RunFolder(sweep / f"{trainer}_{family}_bs3_seq16")
    with contextlib.suppress(DpprofError):
        error: Any = folder.read_error()
        if error is not None:
            return str(error.message).splitlines()[0][:160]
    return "no answer"


def row(folder: Path, trainer: str, family: str) -> list[str]:
    """A trainer's answers for a family."""
    sweep = folder / "runs" / f"measured-{family}"
    found = record_of(sweep, trainer, family)
    peak = found.memory.peak_allocated if found is not None else None
    if found is None or peak is None:
        return [family, short_name(trainer), f"refused: {why_not(sweep, trainer, family)}", "", "", ""]
    estimate = record_of(folder / "runs" / f"estimated-{family}", trainer, family)
    verdict = verdicts(found).get(GRADIENT_CHECK)
    estimated = "" if estimate is None or estimate.ledger is None else f"{estimate.ledger.peak - peak:+,}"
    finished = "all passes" if not found.failed_passes else f"without {', '.join(found.failed_passes)}"
    error = found.gradient_check.relative_error_float64 if found.gradient_check else None
    shown = verdict.word if verdict and error is None else f"{verdict.word}, {error:.0e}" if verdict else ""
    return [family, short_name(trainer), finished, shown, f"{peak:,}", estimated]


def main() -> None:
    folder = Path(sys.argv[1]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    for family in SMALL:
        measured(folder, family)
    print("# Hugging Face families\n")
    versions = (
        f"torch {torch.__version__}, Opacus {opacus.__version__}, transformers {transformers.__version__}"
    )
    print(
        "`python benchmarks/model_families.py FOLDER`: every family at two layers, batch 3, sequence 16 "
        f"(images of 32 x 32), random weights, on a CPU. {versions}. Gradient: the relative error in float64 "
        "against a naive loop over samples. Peak: the allocator's, in bytes, and how far off the estimate "
        "is. Where a model multiplies by a Python number, autograd keeps that in 8 bytes, which no estimate "
        "sees.\n"
    )
    header = ["family", "trainer", "trains", "gradient", "peak", "estimate"]
    rows = [row(folder, trainer, family) for family in SMALL for trainer in TRAINERS]
    print(markdown_table(header, rows, right=4))
    print("## Changed for DP\n")
    for family in SMALL:
        sweep = folder / "runs" / f"measured-{family}"
        found = record_of(sweep, "DPGhostClippingTrainer", family)
        changed = found.changed if found is not None else []
        print(f"- **{family}**: {' '.join(changed) or 'nothing.'}")


if __name__ == "__main__":
    main()
