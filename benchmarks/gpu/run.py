"""Measures in ten minutes on a GPU what dpprof says of it: memory, times of operators and steps, traffic.

    python benchmarks/gpu/run.py FOLDER --minutes 10
    python benchmarks/gpu/run.py FOLDER --rehearse        # on a CPU, with tiny models, in three minutes

Needs torch, Opacus, psutil and numpy; what is missing comes from `wheels/` (`pack.sh`), without a network.
Stages run in the order of their worth. Every result is written as soon as it is there, so a run that is cut
off keeps what it has, and a second one in the same FOLDER goes on. Afterwards, on any machine:

    python benchmarks/gpu/report.py FOLDER > docs/results/gpu_NAME.md
"""

import argparse
import importlib.util
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

HERE = Path(__file__).parent
PROJECT = HERE.parents[1]
sys.path.insert(0, str(PROJECT))

import stages  # noqa: E402
from children import Deadline  # noqa: E402
from experiments import plan_for  # noqa: E402
from results import Results  # noqa: E402
from summary import table  # noqa: E402

# Seconds kept for the end, and those that every stage has at least, if the run has them.
_TO_END_S, _LEAST_S = 3.0, 15.0


class Stage(NamedTuple):
    """A stage, and by which second of 600 it is over. What one does not need, the next ones have."""

    name: str
    over_at: int
    work: Callable[[stages.Run, Deadline], str]


STAGES = (
    Stage("machine", 10, stages.machine),
    Stage("memory", 190, stages.memory),
    Stage("calibrate", 300, stages.calibrate),
    Stage("times", 500, stages.times),
    Stage("full", 550, stages.full),
    Stage("counters", 580, stages.counters),
    Stage("tests", 600, stages.tests),
)


def main() -> None:
    """Run the stages, and print the table."""
    asked = _asked()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as Ctrl-C: children end, results stay
    device = "cpu" if asked.rehearse else "cuda"
    results = Results(asked.folder.resolve())
    kept = json.loads((HERE / "estimates.json").read_text())
    results.note(estimated={name: kept[name] for name in ("target", "dpprof", "torch")}, device=device)
    try:
        with TemporaryDirectory(prefix="dpprof-gpu-") as work:
            site = _installed(asked.wheels, Path(work) / "site")
            run = stages.Run(plan_for(device), kept["rows"], results, Path(work), site, _say)
            _run_stages(run, asked.stages, 60 * asked.minutes)
    except KeyboardInterrupt:
        _say("stopped; what was measured is kept")
        sys.exit(130)
    finally:
        print("\n".join(table(results, plan_for(device), kept["rows"])), flush=True)


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="folder of the results")
    parser.add_argument("--minutes", type=float, default=10.0, help="time for all stages (default: 10)")
    parser.add_argument("--rehearse", action="store_true", help="on a CPU, with tiny models")
    parser.add_argument(
        "--stages",
        type=lambda text: text.split(","),
        default=[stage.name for stage in STAGES],
        help=f"stages to run, of {','.join(stage.name for stage in STAGES)}",
    )
    parser.add_argument(
        "--wheels", type=Path, default=HERE / "wheels", help="packages that are missing there"
    )
    asked = parser.parse_args()
    unknown = set(asked.stages) - {stage.name for stage in STAGES}
    if unknown:
        parser.error(f"--stages: {', '.join(sorted(unknown))} is no stage")
    if asked.minutes <= 0:
        parser.error(f"--minutes: {asked.minutes:g} is not above 0")
    return asked


def _installed(wheels: Path, site: Path) -> Path | None:
    """Install the packages that this Python lacks, from files alone; return their folder."""
    lacking = [
        str(wheel)
        for wheel in sorted(wheels.glob("*.whl"))
        if importlib.util.find_spec(wheel.name.partition("-")[0]) is None
    ]
    if not lacking:
        return None
    how = ["--quiet", "--no-index", "--no-deps", "--no-compile", "--disable-pip-version-check"]
    subprocess.run(
        [sys.executable, "-m", "pip", "install", *how, "--target", str(site), *lacking], check=True
    )
    return site


def _run_stages(run: stages.Run, names: list[str], seconds: float) -> None:
    """Run the stages in order, each within its own share of the time."""
    whole = Deadline(seconds - _TO_END_S)
    begun = time.monotonic()
    ended = run.results.about().get("stages", {})
    for stage in STAGES:
        if stage.name not in names:
            continue
        share = seconds * stage.over_at / 600 - (time.monotonic() - begun)
        deadline = Deadline(min(whole.left_s, max(share, _LEAST_S)))
        _say(f"{stage.name}: up to {deadline.left_s:.0f} s")
        since = time.monotonic()
        try:
            why = stage.work(run, deadline) if deadline.left_s > 1 else "no time was left"
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
        ended[stage.name] = {"seconds": round(time.monotonic() - since, 1), "why": why}
        run.results.note(stages=ended)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
