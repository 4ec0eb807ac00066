"""The formats as files of a run folder."""

import pickle
from pathlib import Path

import example_ledger
import pytest
from example_results import rendered
from format_readers import check, replayed, track

from dpprof.errors import ConfigError
from dpprof.json_files import read_json
from dpprof.pages.reports.formats import FORMATS, collapsed, export
from dpprof.record.figures.results import read_result
from dpprof.record.folder import RunFolder
from dpprof.record.ledger import StepTimeline

PEAK = example_ledger.ledger().peak


def folder(at: Path, timeline: StepTimeline | None) -> RunFolder:
    return example_ledger.folder(at / "run", example_ledger.record(), timeline)


def test_a_rendered_run_has_every_format_and_loses_them_with_its_answers(tmp_path: Path) -> None:
    run = folder(tmp_path, example_ledger.timeline())
    rendered(run)
    assert max(replayed(pickle.loads(run.memory_snapshot.read_bytes()))) == PEAK
    lines = run.peak_stacks.read_text().splitlines()
    assert sum(int(line.rsplit(" ", 1)[1]) for line in lines) == PEAK
    levels = track(check(read_json(run.memory_trace)), "total")
    assert max(level for _, level in levels) == PEAK
    written = {run.memory_snapshot, run.memory_trace, run.peak_stacks}
    assert written < set(run.artifacts().files)
    run.clear_answers()
    assert not [path for path in written if path.exists()]


def test_a_run_without_a_ledger_has_none(tmp_path: Path) -> None:
    run = folder(tmp_path, None)
    result = rendered(run)
    assert not run.memory_trace.exists()
    for form in FORMATS:
        with pytest.raises(ConfigError, match=f"format: got '{form}', but run run has no ledger"):
            export(read_result(run), form)
    assert result.record is not None


def test_stacks_go_from_the_category_down_the_modules_to_the_tensor() -> None:
    mib = example_ledger.MIB
    assert collapsed(example_ledger.timeline()).splitlines() == [
        f"per_sample_gradients;head;weight [2, 2048, 1024] float32 {16 * mib}",
        f"activations;blocks;0;mlp_in;aten::addmm [2, 1024, 1024] float32 {8 * mib}",
        f"parameters;head;weight [1024, 1024] float32 {4 * mib}",
        f"temporary;aten::mul [] float32 {2 * mib}",
    ]


def test_equal_stacks_are_added_and_no_name_breaks_a_line() -> None:
    one = example_ledger.held(3, "activations", [8], "", "a;b\n.c", "forward", "aten::mm")
    timeline = example_ledger.timeline(storages=[one, one], num_present=2, storage_index=[], seconds=[])
    timeline.peak_event = -1
    assert collapsed(timeline) == f"activations;a,b;c;aten::mm [8] float32 {6 * example_ledger.MIB}\n"
