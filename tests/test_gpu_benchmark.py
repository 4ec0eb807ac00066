"""The prepared run on a GPU (`benchmarks/gpu`), rehearsed on the CPU."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from children import Budget, Deadline, Server, environment_of, run_child
from conftest import ROOT
from experiments import plan_for

PLACE = ROOT / "benchmarks" / "gpu"

# Answers without torch: some lines raise, sleep, or kill their process or its parent.
ANSWERS = """
import os, signal, sys, time
sys.path.insert(0, {place!r})
from answers import answer_lines
class OutOfMemoryError(Exception): pass
def answer(settings):
    match settings["do"]:
        case "raise": raise OutOfMemoryError("too large")
        case "sleep": time.sleep(60)
        case "kill": os.kill(os.getpid(), signal.SIGKILL)
        case "orphan": os.kill(os.getppid(), signal.SIGKILL)
        case "leave": os._exit(3)
        case "linger":  # the parent is still there when the next line comes, and never reads it
            parent = os.getppid()
            os.kill(parent, signal.SIGSTOP)
            if os.fork() == 0:
                os.close(1)
                time.sleep(0.5)
                os.kill(parent, signal.SIGKILL)
                os._exit(0)
    return {{"found": 1}}
answer_lines(answer)
"""


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    script = tmp_path / "script.py"
    script.write_text(ANSWERS.format(place=str(PLACE)))
    return [sys.executable, str(script)]


def test_what_goes_wrong_in_one_experiment_leaves_the_others(command: list[str]) -> None:
    kinds = {"raise": "oom", "sleep": "timeout", "kill": "killed", "leave": "error", "orphan": None}
    kinds |= {"linger": None}
    with Server(command, environment_of(None, ROOT), Deadline(1000)) as server:
        for do, kind in kinds.items():
            assert server.ask({"do": do}, limit_s=1 if do == "sleep" else 30).get("kind") == kind
            assert server.ask({"do": "well"}, limit_s=30)["found"] == 1
    assert server.is_over


def test_a_deadline_ends_an_answer(command: list[str]) -> None:
    with Server(command, environment_of(None, ROOT), Deadline(1)) as server:
        answer = server.ask({"do": "sleep"}, limit_s=30)
    assert (answer["kind"], answer["error"]) == ("timeout", "the stage was over")


def test_a_command_that_fails_is_told_with_what_it_said(tmp_path: Path) -> None:
    log, environment = tmp_path / "log", environment_of(None, ROOT)
    assert run_child([sys.executable, "-c", "print('fine')"], log, 60, environment) == ""
    why = run_child([sys.executable, "-c", "raise SystemExit('why')"], log, 60, environment)
    assert why == "ended with code 1: why"
    assert (
        run_child([sys.executable, "-c", "import time; time.sleep(60)"], log, 1, environment)
        == "not over after 1 s"
    )


def test_a_budget_lets_one_in_whatever_it_takes() -> None:
    budget = Budget(10)
    budget.take(20)
    budget.give_back(20)
    budget.take(4)
    budget.take(6)


def test_estimates_are_kept_for_every_experiment() -> None:
    kept = json.loads((PLACE / "estimates.json").read_text())["rows"]
    for device in ("cpu", "cuda"):
        plan = plan_for(device)
        for each in (*plan.memory, *plan.times):
            assert kept[each.of_all]["allocated"] > 0, each.name


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True)


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [("--stages", "mem", "mem is no stage"), ("--minutes", "0", "0 is not above 0")],
)
def test_a_wrong_option_is_named(tmp_path: Path, option: str, value: str, said: str) -> None:
    ended = run(str(PLACE / "run.py"), str(tmp_path / "out"), option, value)
    assert ended.returncode == 2
    assert f"{option}: {said}" in ended.stderr


@pytest.mark.exhaustive
def test_a_rehearsal_runs_all_stages_and_gives_a_page(tmp_path: Path) -> None:
    """The second run does nothing again that is kept."""
    out = tmp_path / "out"
    ended = run(str(PLACE / "run.py"), str(out), "--rehearse")
    assert ended.returncode == 0, ended.stderr[-2000:]
    about = json.loads((out / "run.json").read_text())
    lacking = {name: stage["why"] for name, stage in about["stages"].items() if stage["why"]}
    assert list(about["stages"]) == ["machine", "memory", "calibrate", "times", "full", "counters", "tests"]
    assert list(lacking) == ["counters"], lacking
    assert lacking["counters"].startswith("hardware counters need an NVIDIA GPU")
    assert len(ended.stdout.splitlines()) <= 40
    files = sorted(path.name for path in out.iterdir())
    assert len(files) <= 8
    rows = [json.loads(line) for line in (out / "memory.jsonl").read_text().splitlines()]
    estimates = json.loads((PLACE / "estimates.json").read_text())["rows"]
    assert {row["name"] for row in rows} == {each.name for each in plan_for("cpu").memory}
    for row in rows:
        assert row["allocated"] == pytest.approx(estimates[row["name"]]["allocated"], abs=64), row["name"]
    again = run(str(PLACE / "run.py"), str(out), "--rehearse", "--stages", "memory,times")
    assert again.returncode == 0
    assert len((out / "memory.jsonl").read_text().splitlines()) == len(rows)

    page = run(str(PLACE / "report.py"), str(out))
    assert page.returncode == 0, page.stderr[-2000:]
    for heading in ("Memory", "Times of operators", "Times of steps", "The ledger", "What is not explained"):
        assert f"\n## {heading}\n" in page.stdout
    assert "5 of 5 estimates within 1 %" in page.stdout
