"""The command line: help that teaches, and bad input refused before anything starts."""

import os
from pathlib import Path

import pytest
from conftest import Run, measure_here

MALFORMED = "{'trainers': "
LONG = "a" * 5000
PLAN = ["plan", "--model-size", "tiny", "--dataset-size", "20000", "--device-memory-gib", "0.5"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["profile", "--trainer", "Adam"], "trainer: got 'Adam', allowed: standard (StandardTrainer)"),
        (["profile", "--data", "no.txt"], "data: got 'no.txt', allowed: random, zipf, or the path"),
        (["profile", "--runs-dir", "taken/runs"], "runs_dir: got 'taken/runs', allowed: a folder that can"),
        (["profile", "--workload", "nowhere"], "workload: got 'nowhere', allowed: SimpleBigModel, hugging"),
        (["sweep", "--config", "bad.json"], "config: bad.json cannot be read: it is no valid JSON"),
        (["test", "--device", "tpu"], "device: got 'tpu', allowed: auto, cpu, cuda"),
        (["summarize", "--runs-dir", "none"], "runs_dir: got 'none', allowed: a folder that exists"),
        (["summarize", "a", "--runs-dir", "b"], "runs_dir: got 'b', allowed: nothing beside FOLDER"),
        (["summarize", "--format", "xml"], "format: got 'xml', allowed: table, markdown"),
        (["compare", "none"], "SOURCE: got 'none', allowed: a sweep folder, a run folder, a file of"),
        (["compare", "taken"], "SOURCE: got 'taken', allowed: among files those of `dpprof export"),
        (["compare", "none", "--fail-above", "lots"], "fail_above: got 'lots', allowed: a percentage"),
        (["export", "none", "--format", "xml"], "format: got 'xml', allowed: csv, json, markdown"),
        (["log", "bad.json"], "FOLDER: got 'bad.json', allowed: a run folder, a sweep folder or"),
        (["profile", "--colour", "red"], "No such option"),
        (["profile", "--workload", "nosuch.module:f"], "there is no module nosuch: run from its folder"),
        (["profile", "--workload", f"wl:{LONG}"], "workload: got 'wl:aaaa"),
        (["profile", "--data", LONG], "data: got 'aaaa"),
        (["sweep", "--config", LONG], "config: aaaa"),
        (["show", LONG], "got 'aaaa"),
        (["compare", LONG], "got 'aaaa"),
        (["compare", "nos\udcff"], r"got 'nos\udcff', allowed: text in the encoding of this terminal"),
        ([LONG], "No such command 'aaaa"),
        (["advise", "--trainers", "nobody"], "trainers: got 'nobody'"),
        (["advise", "--headroom", "much"], "headroom: got 'much'"),
        (["advise", "--norm", "gram"], "norm: got 'gram'"),
        (["advise", "--target", "H100", "--device", "cpu"], "target: got 'H100'"),
        (["plan", "--model-size", "tiny"], "dataset_size: it is missing"),
        ([*PLAN, "--target-delta", "0.5"], "target_delta: got '0.5', allowed: a number below 0.1 unless"),
        ([*PLAN, "--device-memory-gib", "0"], "device_memory_gib: got '0.0'"),
        ([*PLAN, "--trainers", "standard"], "trainers: got 'standard'"),
        (["watch", "none.py", "--efficiency", "0.3-0.6"], "script: got 'none.py'"),
        ([*PLAN, "--efficiency=0.3-0.6"], "--efficiency is gone: a plan takes predicted times for --target"),
        ([*PLAN, "--measured", "nowhere"], "measured: got 'nowhere'"),
        (["check", "--trainers", "ghost,nosuch"], "trainers: got 'nosuch'"),
        (["check", "--trainers", ""], "trainers: got an empty text"),
        (["check", "--batch-size", "1"], "batch_size: got '1', allowed: 2 or more"),
        (["check", "a:b", "--workload", "c:d"], "workload: got 'c:d', allowed: what the argument says, a:b"),
        (["check", "nosuch:x"], "workload: got 'nosuch:x', there is no module nosuch: run from its folder"),
    ],
)
def test_bad_input_is_one_line_and_starts_nothing(
    called: Run, tmp_path: Path, arguments: list[str], words: str
) -> None:
    (tmp_path / "bad.json").write_text(MALFORMED)
    (tmp_path / "taken").write_text("a file")
    before = sorted(os.listdir(tmp_path))
    ended = called(*arguments)
    assert ended.returncode == 2
    assert words in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1
    assert len(ended.stderr) < 1500
    after = set(os.listdir(tmp_path)) - {"runs"}
    assert sorted(after) == before, "something was started"
    assert not (tmp_path / "runs").exists() or not os.listdir(tmp_path / "runs")


def test_cuda_is_refused_where_there_is_none(dpprof: Run) -> None:
    ended = dpprof("profile", "--device", "cuda", CUDA_VISIBLE_DEVICES="")
    assert ended.returncode == 2
    assert "device: got 'cuda', allowed: cpu or auto" in ended.stderr


def test_a_fault_is_one_line_with_the_place_of_its_traceback(
    called: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise ZeroDivisionError("one\ntwo")

    monkeypatch.setattr("dpprof.drive.planned_row.plan_data", fail)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    ended = called("snippet", "plan.json")
    (kept,) = tmp_path.glob("dpprof-*.txt")
    said = f"dpprof: internal error: ZeroDivisionError: one two; the traceback is in {kept}\n"
    assert (ended.returncode, ended.stderr) == (1, said)
    assert kept.read_text().startswith("Traceback (most recent call last):")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"model_type": "gpt2", "x": ' + "[" * 100_000 + "]" * 100_000 + "}", "nested too deeply"),
        ('{"model_type": "gpt2", "n_embd": "32"}', "'n_embd' expected int, got str (value: '32')"),
    ],
    ids=["deep", "text"],
)
def test_a_config_that_transformers_cannot_use_is_one_line(tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "config.json").write_text(content)
    ended = measure_here(tmp_path, "check", f"huggingface:{tmp_path}", "--trainers", "standard")
    assert ended.returncode == 2
    assert ended.stderr.count("\n") == 1
    assert said in ended.stderr
