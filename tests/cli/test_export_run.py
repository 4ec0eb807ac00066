"""`dpprof export` of one run, measured or estimated: every format has the record's peak."""

import gzip
import json
import pickle
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from conftest import Run, environment, fine, measure_here, printed, refusal, runs_of
from example_runs import known
from format_readers import check, replayed, track
from mlflow import MlflowClient
from shown_comparison import RUNS
from torch.cuda import _memory_viz as viz

from dpprof.cli.export import export
from dpprof.json_files import read_json
from dpprof.record.folder import RunFolder


def exported(source: Path | str, form: str, *options: str) -> str:
    return printed(export, source, "--format", form, *options)


@pytest.fixture(scope="module")
def estimated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An estimate of ghost clipping."""
    folder = tmp_path_factory.mktemp("estimated")
    options = ["--trainers", "ghost", "--batch-sizes", "2", "--seq-lens", "16", "--model-sizes", "tiny"]
    fine(measure_here(folder, "estimate", *options, "--workers", "1", "--sweep-name", "guess"))
    (run,) = folder.glob("runs/guess/*/config.json")
    return run.parent


@pytest.fixture(params=[*RUNS, "estimated"])
def run(request: pytest.FixtureRequest) -> RunFolder:
    if request.param == "estimated":
        return RunFolder(request.getfixturevalue("estimated"))
    return RunFolder(request.getfixturevalue("swept") / "runs" / "grid é" / request.param)


def test_every_format_of_a_run_has_the_peak_of_its_record(run: RunFolder, tmp_path: Path) -> None:
    ledger = known(known(run.read_record()).ledger)
    exported(run.path, "snapshot", "--output", str(tmp_path / "memory.pickle"))
    snapshot = pickle.loads((tmp_path / "memory.pickle").read_bytes())
    levels = replayed(snapshot)
    assert (max(levels), levels[-1]) == (ledger.peak, sum(ledger.after_step.values()))
    check_viewer(snapshot)
    trace = json.loads(exported(run.path, "perfetto"))
    own = [event for event in trace["traceEvents"] if event.get("cat") == "dpprof_memory"]
    total = track(check({"traceEvents": own}), "total")
    assert max(level for _, level in total) == ledger.peak
    by_category = Counter[str]()
    for line in exported(run.path, "collapsed").splitlines():
        stack, num_bytes = line.rsplit(" ", 1)
        by_category[stack.split(";")[0]] += int(num_bytes)
    assert by_category == ledger.at_peak


def check_viewer(snapshot: Any) -> None:
    """PyTorch's own readers of snapshots read this one."""
    entries = len(snapshot["device_traces"][0])
    assert f"{entries} entries" in viz.trace(snapshot)
    assert "segments: 1" in viz.segsum(snapshot)
    assert "<html>" in viz.trace_plot(snapshot)
    lines: list[str] = []
    viz.memory(snapshot, format_flamegraph=lambda text: lines.extend(text.splitlines()))
    assert any("category:0:parameters" in line and "operator:0:aten::" in line for line in lines)


def test_what_is_exported_is_what_lies_in_the_folder_and_in_mlflow(run: RunFolder, swept: Path) -> None:
    assert run.peak_stacks.read_text() == exported(run.path, "collapsed")
    (trace,) = run.traces() or [run.memory_trace]
    assert read_json(trace) == json.loads(exported(run.path, "perfetto"))
    if run.name in RUNS:
        client = MlflowClient(f"sqlite:///{swept}/mlflow.db")
        kept = {found.path for found in client.list_artifacts(runs_of(swept)[run.name].info.run_id)}
        assert {path.name for path in (run.memory_snapshot, run.peak_stacks)} < kept


def test_the_tracks_fit_the_traced_phases(swept: Path) -> None:
    folder = RunFolder(swept / "runs" / "grid é" / RUNS[1])
    (path,) = folder.traces()
    events = read_json(path)["traceEvents"]
    (peak,) = (event for event in events if event["name"].startswith("peak: "))
    phases = [event for event in events if event["name"].startswith("phase:") and event["dur"]]
    within = [e["name"] for e in phases if e["ts"] <= peak["ts"] <= e["ts"] + e["dur"]]
    assert within == [f"phase:{known(known(folder.read_record()).ledger).peak_phase}"]
    (named,) = (e["args"]["name"] for e in events if e["name"] == "process_name" and "Memory" in str(e))
    assert named.endswith("fitted to this one phase by phase")


def test_a_run_in_mlflow_is_exported_by_its_name(swept: Path, tmp_path: Path, called: Run) -> None:
    uri = environment(swept)["MLFLOW_TRACKING_URI"]
    options = ["--format", "collapsed", "--output", str(tmp_path / "peak.gz")]
    fine(called("export", RUNS[1], *options, MLFLOW_TRACKING_URI=uri))
    lies = (swept / "runs" / "grid é" / RUNS[1] / "peak_memory.collapsed").read_bytes()
    assert gzip.decompress((tmp_path / "peak.gz").read_bytes()) == lies


def test_what_cannot_be_exported_is_refused(swept: Path, tmp_path: Path) -> None:
    sweep = swept / "runs" / "grid é"
    figures = tmp_path / "figures.json"
    figures.write_text(exported(sweep, "json"))
    for source, form, said in (
        (sweep / RUNS[0], "snapshot", "^output: not given, allowed with format=snapshot: a file"),
        (sweep, "collapsed", "^SOURCE: got .*grid é, which holds 4 runs, allowed with .*: one"),
        (figures, "collapsed", "^SOURCE: got .*: a run folder or a run in MLflow, not a file"),
    ):
        assert re.search(said, refusal(exported, source, form))
