"""The formats as files of a run folder."""

import json
import pickle
from pathlib import Path

import example_ledger
import pytest
from example_results import rendered
from format_readers import check, replayed, track

from dpprof.errors import ConfigError
from dpprof.figures.results import read_result
from dpprof.json_files import read_json
from dpprof.record.files import write_gzipped_json
from dpprof.record.folder import RunFolder
from dpprof.record.ledger import StepTimeline
from dpprof.reports.formats.run import FORMATS, export

PEAK = example_ledger.ledger().peak


def folder(at: Path, timeline: StepTimeline | None) -> RunFolder:
    return example_ledger.folder(at / "run", example_ledger.record(), timeline)


def test_a_rendered_run_has_every_format_and_loses_them_with_its_answers(tmp_path: Path) -> None:
    run = folder(tmp_path, example_ledger.timeline())
    rendered(run)
    assert max(replayed(pickle.loads(run.memory_snapshot.read_bytes()))) == PEAK
    lines = run.peak_stacks.read_text().splitlines()
    assert sum(int(line.rsplit(" ", 1)[1]) for line in lines) == PEAK
    assert json.loads(run.peak_speedscope.read_text())["profiles"][0]["endValue"] == PEAK
    levels = track(check(read_json(run.memory_trace)), "total")
    assert max(level for _, level in levels) == PEAK
    written = {run.memory_snapshot, run.memory_trace, run.peak_stacks, run.peak_speedscope}
    assert written < set(run.artifacts().files)
    run.clear_answers()
    assert not [path for path in written if path.exists()]


def test_a_traced_run_has_the_tracks_in_its_trace(tmp_path: Path) -> None:
    run = folder(tmp_path, example_ledger.timeline())
    step = {"ph": "X", "cat": "user_annotation", "name": "training_step", "pid": 1, "ts": 5, "dur": 10}
    trace = run.tensorboard / "dpprof.1.pt.trace.json.gz"
    write_gzipped_json(trace, {"traceEvents": [step]})
    result = rendered(run)
    assert not run.memory_trace.exists()
    levels = track(check(read_json(trace)), "total")
    assert (levels[0], levels[-1][0] < 15) == ((5.0, 4 * example_ledger.MIB), True)
    assert json.loads(export(result, "perfetto")) == read_json(trace)


def test_a_ledger_without_storages_has_the_tracks_alone(tmp_path: Path) -> None:
    run = folder(tmp_path, example_ledger.timeline(storages=[], storage_index=[], num_present=0))
    result = rendered(run)
    assert run.memory_trace.exists()
    assert not [p for p in (run.memory_snapshot, run.peak_stacks, run.peak_speedscope) if p.exists()]
    assert export(result, "perfetto")
    with pytest.raises(ConfigError, match=r"format: got 'snapshot', but the ledger of run run lists only"):
        export(result, "snapshot")


def test_a_run_without_a_ledger_has_none(tmp_path: Path) -> None:
    run = folder(tmp_path, None)
    result = rendered(run)
    assert not run.memory_trace.exists()
    for form in FORMATS:
        with pytest.raises(ConfigError, match=f"format: got '{form}', but run run has no ledger"):
            export(read_result(run), form)
    assert result.record is not None
