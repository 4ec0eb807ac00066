"""How long does the tool itself take, and where do the seconds go?

    git worktree add ../before 911508a
    python benchmarks/own_time.py ../before > docs/results/own_time.md
    python benchmarks/own_time.py --only profile --runs 1

Without a folder, only this checkout is timed. With one, every command runs by turns in both. All is also told
in t0, the time of `python -c "import torch, opacus"`, which is taken before and after each command; a row's
t0 is the median of those around it. After the timed runs each command runs once more with samples of its
stacks (`own_time_samples/`), which say where the driving process is, and what all processes import. Takes two
hours on 2 idle cores; one row with `--only` takes a minute, except for the sweep and the plan. `--keep FILE`
adds each row to a file as soon as it is done, and reports those of the file without timing them again.
"""

import argparse
import compileall
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple

from own_time_parts import Parts, parts_of_runs, parts_of_samples

from dpprof.process import processor
from dpprof.vocabulary.formats import markdown_table

HERE = Path(__file__).parents[1]
SAMPLES = Path(__file__).parent / "own_time_samples"
SMALL = "--trainer ghost --model-size mini --batch-size 4 --seq-len 32 --device cpu"
ONE_B = "--model-sizes 1b --trainers ghost --batch-sizes 8 --seq-lens 1024 --target H100"
SEVEN_B = "--model-sizes 7b --trainers ghost --parallel fsdp2 --world-size 64 --target H100 --batch-sizes 1"
PLAN = "plan --target H100 --num-devices 8 --model-size 1b --dataset-size 10000000 --target-epsilon 8"
LARGE = "--workload huggingface:gpt2-large --seq-lens 1024"
LEAST_S = 0.05
START = "import torch, opacus"
NEW_STORE = "from mlflow import MlflowClient; MlflowClient().search_experiments()"

HOW = """Each figure is from a command's start to its end: the median of so many runs, in each checkout by
turns. MLflow's store, an SQLite file, exists before: MLflow itself makes its tables before the clock starts.
Only `profile-new-store`, the very first profile, makes a store. MiB is the largest resident set of one of the
command's processes.
"""
WHERE = """## Where the seconds go

First the parts of a timed run, the one in the middle, by the times in its run folders. Then those of one
more run, by its stacks, taken every 10 ms: what the driving process does, and what others import, each
package with all that it imports itself. Estimates are forks of a process that has done the imports, and are
not sampled themselves. Sampling makes that run a little slower.
"""


class Row(NamedTuple):
    """A command, how often it runs, and its goal in t0.

    It runs in a new folder, or in that of the row before which it follows (`after`). MLflow's store is there
    already, unless it is `without_store`.
    """

    name: str
    words: str
    runs: int = 1
    goal: float | None = None
    after: str = ""
    without_store: bool = False


ROWS = {
    row.name: row
    for row in (
        Row("help", "--help", 5),
        Row("profile", f"profile {SMALL}", 3, 2.5),
        Row("profile-new-store", f"profile {SMALL}", 3, without_store=True),
        Row("show", "show runs/*/*/", 3, after="profile"),
        Row("sweep", "sweep --device cpu", 1, 24),
        Row("compare", "compare runs/*/", 3, after="sweep"),
        Row("test", "test --device cpu"),
        Row("estimate-1b", f"estimate {ONE_B}", 3, 2),
        Row("estimate-7b", f"estimate {SEVEN_B}", 1, 5),
        Row("plan", PLAN, 1, 15),
        Row("plan-again", PLAN, 1, 2, after="plan"),
        Row("fit", f"fit --target H100 {LARGE}"),
    )
}


class Took(NamedTuple):
    """A run of a command: seconds, largest resident set of one of its processes, and its parts."""

    seconds: float
    mib: float
    parts: Parts


class Timed(NamedTuple):
    """What a row took in each checkout: the run in the middle, and the parts of one with samples.

    `starts` has the seconds that torch and Opacus took to import in between.
    """

    row: str
    runs: int
    starts: list[float]
    middle: dict[str, Took]
    sampled: dict[str, Parts]

    @property
    def t0(self) -> float:
        """The median of the starts."""
        return median(self.starts)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("before", nargs="?", type=Path, help="checkout to compare with")
    parser.add_argument("--only", action="append", choices=list(ROWS), help="a row; may be given again")
    parser.add_argument("--runs", type=int, help="timed runs of each command, instead of each row's own")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="JSON file of rows that are done")
    asked = parser.parse_args()
    checkouts = {"before": asked.before.resolve()} if asked.before else {}
    checkouts["now"] = HERE
    for checkout in checkouts.values():
        compileall.compile_dir(checkout / "dpprof", quiet=1)
    taken = kept_in(asked.keep) if asked.keep and asked.keep.exists() else {}
    with TemporaryDirectory() as folder:
        bench = Bench(checkouts, Path(folder))
        for name in (name for name in asked.only or ROWS if name not in taken):
            taken[name] = bench.time(ROWS[name], asked.runs or ROWS[name].runs)
            if asked.keep:
                asked.keep.write_text(json.dumps(list(taken.values())))
    report([taken[name] for name in ROWS if name in taken], list(checkouts))


def kept_in(file: Path) -> dict[str, Timed]:
    """Read the rows of a file."""
    rows = [Timed(*row) for row in json.loads(file.read_text())]
    middle = ({name: Took(*took) for name, took in row.middle.items()} for row in rows)
    return {row.row: row._replace(middle=each) for row, each in zip(rows, middle, strict=True)}


class Bench:
    """Runs commands in the checkouts, each by turns."""

    def __init__(self, checkouts: dict[str, Path], folder: Path) -> None:
        self._checkouts, self._folder = checkouts, folder
        self._store = folder / "mlflow.db"
        for command in (NEW_STORE, START):  # once unmeasured, to have the files in memory
            subprocess.run([sys.executable, "-c", command], check=True, env=os.environ | uri(self._store))

    def time(self, row: Row, runs: int) -> Timed:
        """Run a row so often."""
        taken: dict[str, list[Took]] = {name: [] for name in self._checkouts}
        starts = [time_start()]
        for run in range(runs):
            for name in self._checkouts:
                taken[name].append(self._run(row, name, str(run)))
                starts.append(time_start())
        middle = {name: sorted(each)[len(each) // 2] for name, each in taken.items()}
        seconds = {name: [round(one.seconds, 2) for one in each] for name, each in taken.items()}
        print(row.name, seconds, "t0", round(median(starts), 2), file=sys.stderr, flush=True)
        sampled = {name: self._run(row, name, "sampled", with_samples=True).parts for name in self._checkouts}
        return Timed(row.name, runs, starts, middle, sampled)

    def _run(self, row: Row, name: str, run: str, *, with_samples: bool = False) -> Took:
        place = self._folder / name / f"{row.after or row.name}_{run}"
        if not place.exists():
            place.mkdir(parents=True)
            if not row.without_store:
                shutil.copyfile(self._store, place / "mlflow.db")
            if row.after:
                self._run(ROWS[row.after], name, run)
        samples = place / f"samples_{row.name}"
        own = uri(place / "mlflow.db") | {"PYTHONPATH": str(self._checkouts[name])}
        if with_samples:
            samples.mkdir()
            own |= {"PYTHONPATH": f"{SAMPLES}:{own['PYTHONPATH']}", "OWN_TIME_SAMPLES": str(samples)}
        runs = place / "runs"
        known, began = set(runs.rglob("record.json")), time.time()
        seconds, mib = command(place, row.words.split(), os.environ | own)
        if with_samples:
            return Took(seconds, mib, parts_of_samples(seconds, samples))
        return Took(seconds, mib, parts_of_runs(began, seconds, set(runs.rglob("record.json")) - known))


def time_start() -> float:
    """Return the seconds that Python takes to import torch and Opacus."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", START], check=True)
    return time.perf_counter() - began


def uri(store: Path) -> dict[str, str]:
    return {"MLFLOW_TRACKING_URI": f"sqlite:///{store}"}


def command(place: Path, words: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Run dpprof in a folder; return seconds, and MiB of the largest resident set of a process."""
    found = [str(path) for word in words for path in (sorted(place.glob(word)) if "*" in word else [word])]
    told = place / "stderr.txt"
    with told.open("w") as stderr:
        began = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-m", "dpprof", *found],
            cwd=place,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
        )
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"dpprof {' '.join(found)} with {environment['PYTHONPATH']}: {told.read_text()}")
    return seconds, usage.ru_maxrss / 1024


def report(taken: list[Timed], names: list[str]) -> None:
    """Print the page."""
    here = processor()
    starts = [start for timed in taken for start in timed.starts]
    versions = ", ".join(f"{package} {version(package)}" for package in ("torch", "opacus", "mlflow"))
    print("# The tool's own time\n")
    print(f"Made by `python benchmarks/own_time.py`: Python {sys.version.split()[0]}, {versions},")
    print(f"{here['cpu']}, {here['cpu_cores']} cores. **t0** is the time of")
    print(f'`python -c "{START}"`: for each row the median of those before and after its commands. All')
    print(
        f"{len(starts)} took {min(starts):.2f} to {max(starts):.2f} s, {median(starts):.2f} in the middle.\n"
    )
    print(HOW)
    units = [f"{name}, {unit}" for unit in ("s", "t0") for name in names]
    headings = ["row", "runs", "t0, s", *units, "goal, t0", *(f"{name}, MiB" for name in names)]
    print(markdown_table(headings, list(totals(taken)), right=1))
    print(WHERE, end="")
    for timed in taken:
        print(f"\n### {timed.row}\n\n{described(ROWS[timed.row])}")
        for parts in ({name: took.parts for name, took in timed.middle.items()}, timed.sampled):
            for kind in dict.fromkeys(kind for found in parts.values() for kind in found):
                lines = list(part_rows([found.get(kind, {}) for found in parts.values()], timed.t0))
                print(f"\n{markdown_table([kind, *units], lines, right=1)}", end="")


def described(row: Row) -> str:
    where = f", in the folder of `{row.after}`" if row.after else ", with a new store" * row.without_store
    return f"`dpprof {row.words}`{where}:"


def totals(taken: list[Timed]) -> Iterator[list[str]]:
    for timed in taken:
        took, wanted = timed.middle.values(), ROWS[timed.row].goal
        seconds = in_both([one.seconds for one in took], timed.t0)
        goal = "" if wanted is None else f"{wanted:g}"
        mib = [f"{one.mib:,.0f}" for one in took]
        yield [timed.row, str(timed.runs), f"{timed.t0:.2f}", *seconds, goal, *mib]


def part_rows(parts: list[dict[str, float]], t0: float) -> Iterator[list[str]]:
    """A line for each part, in the order of the last checkout's; those below `LEAST_S` share one."""
    small = [0.0] * len(parts)
    for name in dict.fromkeys(name for found in reversed(parts) for name in found):
        seconds = [found.get(name, 0.0) for found in parts]
        if max(map(abs, seconds)) >= LEAST_S:
            yield [name, *in_both(seconds, t0)]
        else:
            small = [before + one for before, one in zip(small, seconds, strict=True)]
    yield ["all smaller parts", *in_both(small, t0)]
    yield ["together", *in_both([sum(found.values()) for found in parts], t0)]


def in_both(seconds: list[float], t0: float) -> list[str]:
    return [*(f"{one:.2f}" for one in seconds), *(f"{one / t0:.2f}" for one in seconds)]


if __name__ == "__main__":
    main()
