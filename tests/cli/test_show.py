from functools import partial
from pathlib import Path

import example_counters
import example_ledger
import pytest
from conftest import printed, refusal

from dpprof.cli.show import show
from dpprof.record.record import Failure, FailureKind, Memory, ParameterGroup, PassOutcome, PassStatus

shown = partial(printed, show)


def stripped(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in text.splitlines()]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return example_ledger.folder(tmp_path / "run", example_ledger.record(), example_ledger.timeline()).path


def test_show_prints_the_peak_the_tensors_the_phases_and_the_traffic(run: Path) -> None:
    text = shown(run)
    assert text.startswith("\npeak 30.30 MiB in backward: the ledger sees 30.00 MiB of it, ")
    rows = stripped(text)
    for row in (
        ["per-sample gradients", "16.00", "52.8", 20 * "█"],
        ["activations", "8.00", "26.4", 10 * "█"],
        ["together", "30.30", "100.0"],
        ["16.00", "per-sample gradients", "head.weight", "2 x 2048 x 1024", "float32", "backward", "bmm"],
        ["4.00", "parameters", "head.weight", "1024 x 1024", "float32", "before the step", "empty"],
        ["backward", "100.00", "30.00", "31.00", "per-sample gradients"],
        ["forward", "10.0", "4.0", "3.00", "204.4"],
        ["step", "21.0", "21.0", "11.00", "249.8"],
        ["matrix product", "16.0", "18.0", "11.00", "308.5"],
    ):
        assert row in rows
    assert "Largest tensors at the peak (4 of 4)" in text
    assert "warning" not in text


def test_show_lists_what_trains_and_what_was_changed(tmp_path: Path) -> None:
    groups = [
        ParameterGroup("lora_A.weight", 12, 18_432, trains=True, per_sample=True, moved=True, dtype="fp32"),
        ParameterGroup("Linear.weight", 13, 163_840, False, per_sample=False, moved=False, dtype="bf16"),
    ]
    record = example_ledger.record(parameters=groups, changed=["untied [head]: 65,000 more parameters"])
    text = shown(example_ledger.folder(tmp_path / "run", record, example_ledger.timeline()).path)
    rows = stripped(text)
    assert ["kind", "type", "tensors", "numbers", "train", "per-sample gradients", "moved"] in rows
    assert ["lora_A.weight", "fp32", "12", "18,432", "yes", "yes", "yes"] in rows
    assert ["Linear.weight", "bf16", "13", "163,840", "no", "no", "no"] in rows
    assert "changed for training: untied [head]: 65,000 more parameters" in text
    assert "precision: fp32, weights in bf16 and fp32" in text


def test_tensors_can_be_limited_or_left_out(run: Path) -> None:
    assert "Largest tensors at the peak (1 of 4)" in shown(run, "--tensors", "1")
    assert "Largest tensors" not in shown(run, "--tensors", "0")
    assert "tensors: got -1, allowed: 0 or more" in refusal(shown, run, "--tensors", "-1")


def test_show_warns_of_a_ledger_that_misses_too_much(tmp_path: Path) -> None:
    record = example_ledger.record(memory=Memory(peak_allocated=40 * 2**20))
    folder = example_ledger.folder(tmp_path / "run", record, example_ledger.timeline())
    assert "warning: the ledger sees 25.0 % less" in shown(folder.path)


def test_show_says_why_there_is_nothing_to_show(tmp_path: Path) -> None:
    nowhere = refusal(shown, tmp_path / "nowhere")
    assert nowhere.startswith("run_folder: got ")
    assert nowhere.endswith("allowed: a run folder that exists")
    assert "allowed: a folder with a config.json in it" in refusal(shown, tmp_path)
    unmeasured = example_ledger.record(ledger=None)
    folder = example_ledger.folder(tmp_path / "not asked for", unmeasured, None)
    said = "has no ledger to show; its ledger pass did not run (passes="
    assert said in refusal(shown, folder.path)
    unmeasured.passes["ledger"] = PassOutcome(PassStatus.FAILED, "RuntimeError: no such operator")
    folder.write_record(unmeasured)
    assert "it failed: RuntimeError: no such operator" in refusal(shown, folder.path)
    folder = example_ledger.folder(tmp_path / "oom", None, None)
    folder.write_error(Failure(FailureKind.OOM, "out of memory"))
    assert "it failed: out of memory" in refusal(shown, folder.path)


def test_counters_are_shown_after_the_ledger_and_alone_without_one(tmp_path: Path) -> None:
    record = example_ledger.record(counters=example_counters.counters())
    both = shown(example_ledger.folder(tmp_path / "both", record, example_ledger.timeline()).path)
    assert both.index("Bytes moved by operator class") < both.index("Hardware counters by phase")
    rows = [" ".join(row) for row in stripped(both)]
    for row in (
        "forward 4 2.00 6.00 2.00 3.91 40.0 2.00 1.00 8.00 4.00 14.0 0.57",
        "step 12 8.00 18.0 10.0 3.42 42.0 0.67",
        "matrix product 3 5.00 14.0 8.00 4.30 44.0 2.00 1.00 8.00 4.00",
        "Memcpy between phases copy 1 1.00 1.00 1.00 1.95 10.0 1.00 0.50 4.00 2.00",
        f"{example_counters.SM_PCT} 75.0",
    ):
        assert row in rows
    assert "Kernels with the most DRAM traffic (5 of 5)" in both
    assert "sm__cycles_active.sum was not counted: this GPU has no such metric" in both
    record.ledger = None
    alone = shown(example_ledger.folder(tmp_path / "alone", record, None).path, "--kernels", "1")
    assert "At the peak" not in alone
    assert "(1 of 5)" in alone
    assert "DRAM / ledger" not in alone
    assert "Kernels with" not in shown(tmp_path / "alone", "--kernels", "0")
    assert "kernels: got -1, allowed: 0 or more" in refusal(shown, tmp_path / "alone", "--kernels", "-1")
