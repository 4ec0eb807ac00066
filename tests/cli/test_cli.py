"""The command line: help that teaches, and bad input refused before anything starts."""

import os
from pathlib import Path

import pytest
from conftest import Run

from dpprof.cli.main import COMMANDS

MALFORMED = "{'trainers': "
LONG, HUGE = "a" * 5000, str(10**30)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["profile", "--trainer", "Adam"], "trainer: got 'Adam', allowed: StandardTrainer, DPSGDTrainer"),
        (["profile", "--batch-size", "0"], "batch_size: got '0', allowed: a whole number of at least 1"),
        (["profile", "--batch_size", "two"], "batch_size: got 'two', allowed: a whole number"),
        (
            ["profile", "--hidden-dim", "65"],
            "hidden_dim: got '65', allowed: a multiple of num_heads, which is 4",
        ),
        (["profile", "--data", "no.txt"], "data: got 'no.txt', allowed: random, zipf, or the path"),
        (
            ["profile", "--runs-dir", "taken/runs"],
            "runs_dir: got 'taken/runs', allowed: a folder that can be",
        ),
        (["profile", "--timeout-s", "nan"], "timeout_s: got 'nan', allowed: a number above 0"),
        (
            ["profile", "--workload", "nowhere"],
            "workload: got 'nowhere', allowed: SimpleBigModel, huggingface:NAME or package",
        ),
        (["sweep", "--config", "bad.json"], "config: got 'bad.json', allowed: a file of valid JSON"),
        (
            ["sweep", "--config", "none.json"],
            "config: got 'none.json', allowed: a JSON file that can be read",
        ),
        (["sweep", "--batch-sizes", "2,,4"], "batch_size: got an empty text"),
        (["sweep", "--sweep-name", "../out"], "sweep_name: got '../out', allowed: letters"),
        (["sweep", "--resume", "true"], "resume: got 'true', allowed: only together with sweep_name"),
        (["test", "--device", "tpu"], "device: got 'tpu', allowed: auto, cpu, cuda"),
        (["summarize", "--runs-dir", "none"], "runs_dir: got 'none', allowed: a folder that exists"),
        (["summarize", "a", "--runs-dir", "b"], "runs_dir: got 'b', allowed: nothing beside FOLDER"),
        (["summarize", "--format", "xml"], "format: got 'xml', allowed: table, markdown"),
        (["compare", "none"], "SOURCE: got 'none', allowed: a sweep folder, a run folder, a file of"),
        (["compare", "taken"], "SOURCE: got 'taken', allowed: among files those of `dpprof export"),
        (["compare", "none", "--fail-above", "lots"], "fail_above: got 'lots', allowed: a percentage"),
        (["compare", "none", "--fail-above", "-1%"], "fail_above: got '-1%', allowed: a percentage"),
        (["export", "none", "--format", "xml"], "format: got 'xml', allowed: csv, json, markdown"),
        (["log", "bad.json"], "FOLDER: got 'bad.json', allowed: a run folder or a sweep folder"),
        (["profile", "--colour", "red"], "No such option"),
        (["profile", "--workload", "nosuch.module:f"], "there is no module nosuch: run from its folder"),
        (["profile", "--workload", f"wl:{LONG}"], "workload: got 'wl:aaaa"),
        (["profile", "--data", LONG], "data: got 'aaaa"),
        (["profile", "--passes", "estimate"], "passes: got 'estimate', allowed: clean, and with it any of"),
        (["profile", "--batch-size", HUGE], f"batch_size: got '{HUGE}', allowed: a whole number up to 1,0"),
        (["profile", "--seed", HUGE], f"seed: got '{HUGE}', allowed: a whole number of at least 0 and below"),
        (
            ["estimate", "--device-memory-gib", "1e300"],
            "device_memory_gib: got '1e300', allowed: a number",
        ),
        (["sweep", "--sweep-name", LONG], "allowed: a name of at most 200 bytes"),
        (["sweep", "--config", "pipe"], "config: got 'pipe', allowed: a JSON file that can be read (this is"),
        (["sweep", "--config", "deep.json"], "config: got 'deep.json', allowed: a JSON object of option"),
        (["sweep", "--config", LONG], "config: got 'aaaa"),
        (["show", LONG], "got 'aaaa"),
        (["compare", LONG], "got 'aaaa"),
        (["compare", "nos\udcff"], r"got 'nos\udcff', allowed: text in the encoding of this terminal"),
        ([LONG], "No such command 'aaaa"),
    ],
)
def test_bad_input_is_one_line_and_starts_nothing(
    called: Run, tmp_path: Path, arguments: list[str], words: str
) -> None:
    (tmp_path / "bad.json").write_text(MALFORMED)
    (tmp_path / "taken").write_text("a file")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    os.mkfifo(tmp_path / "pipe")
    before = sorted(os.listdir(tmp_path))
    ended = called(*arguments)
    assert ended.returncode == 2
    assert words in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1
    assert len(ended.stderr) < 1500
    after = set(os.listdir(tmp_path)) - {"runs"}
    assert sorted(after) == before, "something was started"
    assert not (tmp_path / "runs").exists() or not os.listdir(tmp_path / "runs")


def test_cuda_is_refused_where_there_is_none(dpprof: Run, tmp_path: Path) -> None:
    ended = dpprof("profile", "--device", "cuda", CUDA_VISIBLE_DEVICES="")
    assert ended.returncode == 2
    assert "device: got 'cuda', allowed: cpu or auto" in ended.stderr


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: str(command.name))
def test_help_names_every_option(dpprof: Run, command: object) -> None:
    ended = dpprof(str(command.name), "--help")  # type: ignore[attr-defined]
    assert ended.returncode == 0
    for option in command.params:  # type: ignore[attr-defined]
        if option.opts[0].startswith("--"):
            assert option.opts[0] in ended.stdout


def test_in_process_runs_without_a_child(called: Run, tmp_path: Path) -> None:
    ended = called(
        "profile", "--launcher", "in_process", "--passes", "clean", "--seq-len", "16", "--measured-steps", "2"
    )
    assert ended.returncode == 0, ended.stderr
    (record,) = (tmp_path / "runs").glob("*/*/record.json")
    assert not (record.parent / "run.log").exists()
