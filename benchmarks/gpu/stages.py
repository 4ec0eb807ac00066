"""The stages of a run, each until its deadline. A failed experiment is noted, and the next begins."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from children import Budget, Deadline, Server, end, ended, environment_of, run_child
from experiments import Experiment, Plan
from results import Results

from dpprof.config.counter_metrics import metric_names, resolve
from dpprof.config.flat import from_flat
from dpprof.config.measuring import CLEAN
from dpprof.drive.launch.job import CALIBRATE, COUNTED_STEP, MEASURE
from dpprof.drive.ncu import program
from dpprof.errors import CountersError
from dpprof.record.folder import RunFolder

HERE = Path(__file__).parent
PROJECT = HERE.parents[1]
# Experiments of the memory stage at a time, and the share of a GPU's memory that they may need together: an
# allocator that is refused memory frees what it has cached, which would change what is reserved.
_AT_A_TIME = {"cuda": 8, "cpu": 2}
_SHARE = 0.7
# Seconds that one experiment may take, and those without which none begins.
_LONGEST_S, _LEAST_S = 60, 4
_ALL_PASSES = "clean,memory,ledger,trace,ceilings"
_PRECISIONS = {"cuda": "fp32,tf32,bf16", "cpu": "fp32"}
_LAST_OF_LOG = 2000
# A table with this many times fewer operators, for a rehearsal.
_SPARSE = 60


@dataclass(frozen=True)
class Run:
    """What all stages share: the experiments, their estimates, the results, and a folder for run folders."""

    plan: Plan
    estimates: dict[str, dict[str, Any]]
    results: Results
    work: Path
    site: Path | None
    say: Callable[[str], None]

    @property
    def environment(self) -> dict[str, str]:
        """Variables of child processes."""
        return environment_of(self.site, PROJECT)

    def script(self, name: str, *arguments: str) -> list[str]:
        """Return the command of a script beside this file."""
        return [sys.executable, "-W", "ignore", str(HERE / name), *arguments]

    @property
    def log(self) -> Path:
        """Output of child processes."""
        return self.work / "log.txt"


def machine(run: Run, deadline: Deadline) -> str:
    """Note what the machine is."""
    try:
        done = subprocess.run(
            run.script("machine.py", run.plan.device),
            env=run.environment,
            capture_output=True,
            text=True,
            timeout=deadline.left_s,
        )
    except subprocess.TimeoutExpired:
        return "not over in time"
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        return done.stderr[-_LAST_OF_LOG:]
    run.results.note(machine=json.loads(lines[-1]))
    return ""


def memory(run: Run, deadline: Deadline) -> str:
    """Keep the peaks of many experiments, several at a time, each in a process of its own."""
    gpu_bytes = run.results.about().get("machine", {}).get("gpu_memory_bytes", 0)
    budget = Budget(_SHARE * gpu_bytes if gpu_bytes else float("inf"))
    left = iter([each for each in run.plan.memory if not run.results.is_known("memory", each.name)])

    def work(server: Server) -> None:
        while deadline.left_s > _LEAST_S and not server.is_over:
            each = next(left, None)
            if each is None:
                return
            needed = run.estimates.get(each.of_all, {}).get("reserved") or 0
            budget.take(needed)
            try:
                _peaks(run, each, server, deadline, gpu_bytes)
            finally:
                budget.give_back(needed)

    at_a_time = _AT_A_TIME[run.plan.device]
    # Servers end first, also after Ctrl-C: whoever waits for an answer then gets none.
    with ThreadPoolExecutor(at_a_time) as pool, ExitStack() as entered:
        servers = [Server(run.script("peaks.py"), run.environment, deadline) for _ in range(at_a_time)]
        for done in [pool.submit(work, entered.enter_context(server)) for server in servers]:
            done.result()
    return _missing(run, "memory", run.plan.memory)


def _peaks(run: Run, each: Experiment, server: Server, deadline: Deadline, gpu_bytes: int) -> None:
    """Ask for an experiment's peaks, and keep them."""
    asked = {"device": run.plan.device} | each.values
    if each.share is not None:
        least = run.estimates.get(each.of_all, {}).get("least")
        if not least or not gpu_bytes:
            return
        asked["share"] = min(1.0, each.share * least / gpu_bytes)
    answer = server.ask(asked, max(1, int(min(_LONGEST_S, deadline.left_s))))
    run.results.add("memory", {"name": each.name, **answer})
    run.say(f"{each.name}: {answer.get('error') or _mib(answer)}")


def _mib(answer: dict[str, Any]) -> str:
    told = [
        f"{answer[name] / 2**20:,.1f} MiB {name}" for name in ("allocated", "reserved") if answer.get(name)
    ]
    return ", ".join(told)


def _missing(run: Run, kind: str, experiments: tuple[Experiment, ...]) -> str:
    """Return how many experiments have no result, for the table of stages."""
    rows = run.results.rows(kind)
    not_begun = [each.name for each in experiments if each.name not in rows]
    failed = [name for name, row in rows.items() if "error" in row and " at " not in name]
    told = [f"{len(not_begun)} of {len(experiments)} not run"] * bool(not_begun)
    return "; ".join(told + [f"{len(failed)} failed"] * bool(failed))


def calibrate(run: Run, deadline: Deadline) -> str:
    """Time operators on this device: a table of dpprof's."""
    device, folder = run.plan.device, run.work / "calibration"
    folder.mkdir(exist_ok=True)
    if device == "cpu":
        command = run.script("sparse_table.py", str(_SPARSE), str(folder))
    else:
        command = [sys.executable, "-P", MEASURE, CALIBRATE, device, _PRECISIONS[device], str(folder)]
    why = run_child(command, run.log, deadline.left_s, run.environment)
    if (folder / "times.json").exists():
        shutil.copy(folder / "times.json", run.results.times)
        return why and f"{why}: what there is, is from the first round"
    return why or "it left no table"


def times(run: Run, deadline: Deadline) -> str:
    """Time the steps of one experiment at a time, alone; the next process imports meanwhile."""
    waiting = [each for each in run.plan.times if not run.results.is_known("steps", each.name)]
    folder = run.work / "runs"
    with _imported(run, waiting) as processes:
        for each in waiting:
            if deadline.left_s < _LEAST_S:
                break
            row = _measured(run, each, next(processes), folder, min(_LONGEST_S, deadline.left_s))
            run.results.add("steps", row)
            run.results.keep("runs", folder)
            steps = sorted(row.get("step_s", [0]))
            run.say(f"{each.name}: {row.get('error') or f'{1e3 * steps[len(steps) // 2]:.1f} ms'}")
    return _missing(run, "steps", run.plan.times)


@contextmanager
def _imported(run: Run, waiting: list[Experiment]) -> Iterator[Iterator["subprocess.Popen[str]"]]:
    """Give processes that have imported everything: one more than is asked for, and never more."""
    started: list[subprocess.Popen[str]] = []

    def start(each: Experiment) -> None:
        extra = ["transformers", "peft"] if "huggingface" in str(each.settings.get("workload")) else []
        with run.log.open("ab") as output:
            process = subprocess.Popen(
                run.script("waiting.py", *extra),
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env=run.environment,
                start_new_session=True,
                text=True,
            )
        started.append(process)

    def given() -> Iterator["subprocess.Popen[str]"]:
        for number in range(len(waiting)):
            for each in waiting[len(started) : number + 2]:
                start(each)
            yield started[number]

    try:
        yield given()
    finally:
        for process in started:
            end(process)


def _measured(
    run: Run, each: Experiment, process: "subprocess.Popen[str]", home: Path, limit_s: float
) -> dict[str, Any]:
    """Measure an experiment's clean steps in a process that waits, and return its row."""
    run_folder = _create(run, each, home, CLEAN)
    assert process.stdin is not None, "it is a pipe"
    with suppress(BrokenPipeError):
        process.stdin.write(f"{run_folder.path}\n")
        process.stdin.close()
    why = ended(process, limit_s)
    return {"name": each.name, **_outcome(run, run_folder, why)}


def _create(run: Run, each: Experiment, home: Path, passes: str) -> RunFolder:
    values = each.values | {"device": run.plan.device, "passes": passes}
    config = from_flat(values).resolve(cuda_available=run.plan.device == "cuda")
    run_folder = RunFolder(home / config.run_name)
    run_folder.create(config)
    return run_folder


def _outcome(run: Run, run_folder: RunFolder, why: str) -> dict[str, Any]:
    """Return what a process left: the steps' figures, or its error."""
    if run_folder.error.exists():
        told = json.loads(run_folder.error.read_text())
        return {"kind": told["kind"], "error": told["message"], "traceback": told["traceback"]}
    if why or not run_folder.record.exists():
        said = run.log.read_text(errors="replace")[-_LAST_OF_LOG:] if run.log.exists() else ""
        return {"kind": "killed", "error": why or "it left no record", "traceback": said}
    record = json.loads(run_folder.record.read_text())
    return {name: record[name] for name in ("config", "step_s", "phase_s", "memory", "passes")}


def full(run: Run, deadline: Deadline) -> str:
    """Run all passes of a few experiments, for the ledger beside the allocator, trace and timeline."""
    why = []
    for each in run.plan.full:
        if deadline.left_s < _LEAST_S:
            why.append(f"{each.name}: not run")
            continue
        home = run.work / f"full_{each.trainer}"
        run_folder = _create(run, each, home, _ALL_PASSES)
        command = [sys.executable, "-P", MEASURE, str(run_folder.path)]
        told = run_child(command, run.log, min(_LONGEST_S, deadline.left_s), run.environment)
        why += [f"{each.name}: {told}"] * bool(told)
        run.results.keep(home.name, home)
        run.say(f"{each.name}, all passes: {told or 'done'}")
    return "; ".join(why)


def counters(run: Run, deadline: Deadline) -> str:
    """Count what the same experiments move, under Nsight Compute."""
    lacking = run.results.about().get("machine", {}).get("counters")
    if lacking:
        return str(lacking)
    why = []
    for each in run.plan.full:
        home = run.work / f"full_{each.trainer}"
        folders = sorted(home.glob("*/record.json"))
        if not folders or deadline.left_s < _LEAST_S:
            why.append(f"{each.name}: not counted")
            continue
        told = _counted(run, RunFolder(folders[0].parent), deadline)
        why += [f"{each.name}: {told}"] * bool(told)
        run.results.keep(home.name, home)
        run.say(f"{each.name}, counters: {told or 'done'}")
    return "; ".join(why)


def _counted(run: Run, run_folder: RunFolder, deadline: Deadline) -> str:
    try:
        ncu = program.require(run.plan.device)
        names, _ = resolve(metric_names("basic"), ncu.available_metrics())
        config = from_flat(json.loads(run_folder.config.read_text()))
        run_folder.counter_reports.mkdir(exist_ok=True)
        wrapped = [sys.executable, "-P", MEASURE, COUNTED_STEP, str(run_folder.path)]
        command = ncu.count_command(run_folder.counter_report(config, ""), names, wrapped)
        why = run_child(command, run_folder.counter_log, deadline.left_s, run.environment)
        report = run_folder.counter_report(config, ".ncu-rep")
        if not report.exists():
            return why or "ncu left no report"
        run_folder.counter_report(config, ".csv").write_text(ncu.to_csv(report))
        report.unlink()  # its table is in the other file, a tenth as large
        return why
    except CountersError as error:
        return str(error)


def tests(run: Run, deadline: Deadline) -> str:
    """Run the project's tests of GPUs with the time that is left."""
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:randomly", "--tb=short", "-rfE"]
    command = [sys.executable, "-m", "pytest", *options, str(PROJECT / "tests" / "gpu")]
    run.results.tests.unlink(missing_ok=True)
    return run_child(command, run.results.tests, deadline.left_s, run.environment)
