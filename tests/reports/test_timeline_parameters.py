from pathlib import Path

import example_ledger
from page_reader import Page

from dpprof.figures.results import read_result
from dpprof.record.record import ParameterGroup, Record
from dpprof.reports.timeline import compute, render


def page_of(at: Path, record: Record) -> Page:
    page = compute(read_result(example_ledger.folder(at, record, example_ledger.timeline())))
    assert page is not None
    return Page(render(page))


def test_the_page_lists_parameters_by_kind_and_what_was_changed(tmp_path: Path) -> None:
    groups = [
        ParameterGroup("lora_A.weight", 12, 18_432, trains=True, per_sample=True, moved=True),
        ParameterGroup("Linear.weight", 13, 163_840, trains=False, per_sample=False, moved=None),
    ]
    changed = ["LoRA adapters of rank 8 in <a>", "tied weights are untied"]
    page = page_of(tmp_path / "run", example_ledger.record(parameters=groups, changed=changed))
    assert page.tables["parameters"] == [
        ["kind", "tensors", "numbers", "train", "per-sample gradients", "moved"],
        ["lora_A.weight", "12", "18,432", "yes", "yes", "yes"],
        ["Linear.weight", "13", "163,840", "no", "no", ""],
    ]
    assert "Changed for training" in page.text
    assert all(text in page.text for text in changed)
    assert "a" not in page.tags


def test_a_page_of_an_earlier_record_has_neither(tmp_path: Path) -> None:
    page = page_of(tmp_path / "run", example_ledger.record())
    assert "parameters" not in page.tables
    assert "Changed for training" not in page.text
