"""How far off are estimates? Estimated against measured peaks on this machine's CPU.

    python benchmarks/estimate_errors.py FOLDER [--trainers all] [--model-sizes tiny,small,medium]
        [--batch-sizes 2,4,8] [--seq-lens 128,512]

Estimates a grid for the CPU, measures it under the ledger and with the allocator's events, and prints the
two side by side as a Markdown table; the one kept is `docs/results/estimate_errors.md`. What FOLDER has
already is kept. Takes half an hour on 2 cores, most of it for `medium`.
"""

import argparse
import subprocess
import sys
from pathlib import Path

from dpprof.drive.sources import read_comparison
from dpprof.findings.comparison.side_tables import pairs
from dpprof.pages import markdown
from dpprof.pages.comparison.tables import estimate_table
from dpprof.pages.document import Document


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--trainers", default="all")
    parser.add_argument("--model-sizes", default="tiny,small,medium")
    parser.add_argument("--batch-sizes", default="2,4,8")
    parser.add_argument("--seq-lens", default="128,512")
    options = parser.parse_args()
    folder: Path = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    grid = ["--device", "cpu"]
    for name in ("trainers", "model_sizes", "batch_sizes", "seq_lens"):
        grid += [f"--{name.replace('_', '-')}", getattr(options, name)]
    short = ["--warmup-steps", "1", "--measured-steps", "1", "--passes", "clean,memory,ledger"]
    dpprof(folder, "estimate", "estimated", *grid)
    dpprof(folder, "sweep", "measured", *grid, *short)
    names = [str(folder / "runs" / name) for name in ("estimated", "measured")]
    comparison, _ = read_comparison(names, folder, print)
    print(markdown.render(Document("Estimate and measurement", [estimate_table(comparison)])))
    off = [pct for pair in pairs(comparison) if (pct := pair.tensors.off_pct) is not None]
    print(f"{len(off)} experiments; off by {min(off):+.3f} to {max(off):+.3f} % of the ledger's peak")


def dpprof(folder: Path, command: str, name: str, *arguments: str) -> None:
    """Run a command in the folder, which has an MLflow store of its own."""
    named = ["--sweep-name", name, "--resume", str((folder / "runs" / name).exists()).lower()]
    line = [sys.executable, "-m", "dpprof", command, *arguments, *named]
    subprocess.run(line, cwd=folder, check=True, stdout=sys.stderr)


if __name__ == "__main__":
    main()
