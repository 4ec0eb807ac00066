"""Counter tracks of memory: their levels, their place in time, and Chrome's trace event format."""

from typing import Any

import example_ledger
import pytest
from format_readers import check, track

from dpprof.pages.formats.perfetto import own_trace, with_memory

MIB = example_ledger.MIB


def traced(*phases: tuple[str, float, float], start: float = 1000.0, end: float = 2000.0) -> dict[str, Any]:
    """A trace of one step with these phases."""
    annotation = {"ph": "X", "cat": "user_annotation", "pid": 7, "tid": 7, "args": {}}
    ranges = [("training_step", start, end), *((f"phase:{name}", a, b) for name, a, b in phases)]
    return {
        "schemaVersion": 1,
        "traceEvents": [{**annotation, "name": name, "ts": a, "dur": b - a} for name, a, b in ranges],
    }


def test_a_trace_of_its_own_has_levels_and_phases_at_the_ledgers_time() -> None:
    events = check(own_trace(example_ledger.timeline(), "estimated"))
    assert [level // MIB for _, level in track(events, "total")] == [4, 12, 16, 12, 28, 30, 22, 20, 20]
    assert track(events, "activations") == [(0.0, 0), (100_000.0, 8 * MIB), (400_000.0, 0)]
    assert track(events, "summed_gradients") == [(0.0, 0), (500_000.0, 16 * MIB)]
    slices = [(e["name"], e["ts"], e["dur"]) for e in events if e["ph"] == "X"]
    assert slices == [("phase:forward", 50_000.0, 200_000.0), ("phase:backward", 270_000.0, 180_000.0)]
    (peak,) = (e for e in events if e["ph"] == "i")
    assert (peak["name"], peak["ts"]) == (f"peak: {30 * MIB} bytes", 350_000.0)
    (process,) = (e["args"]["name"] for e in events if e["name"] == "process_name")
    assert process == "Memory: estimated"


def test_in_a_trace_each_phase_is_stretched_to_the_traced_one() -> None:
    trace = traced(("forward", 1100.0, 1200.0), ("backward", 1300.0, 1800.0))
    made = with_memory(trace, example_ledger.timeline())
    events = check(made)
    assert events[:3] == trace["traceEvents"]
    assert with_memory(made, example_ledger.timeline()) == made, "made twice the tracks are there once"
    moments = [at for at, _ in track(events, "total")]
    # Forward lasted 0.05 to 0.25 s under the ledger, backward 0.27 to 0.45 s, the step 0.6 s.
    assert moments == pytest.approx(
        [1000, 1125, 1150, 1175, 1383.333, 1522.222, 1661.111, 1716.667, 1866.667], abs=0.001
    )
    (process,) = (e["args"]["name"] for e in events if e["name"] == "process_name")
    assert process == "Memory: the ledger's step, fitted to this one phase by phase"
    assert {e["pid"] for e in events if e["ph"] == "C"} == {8}


def test_a_step_with_other_phases_is_stretched_as_a_whole() -> None:
    events = check(with_memory(traced(("forward", 1100.0, 1200.0)), example_ledger.timeline()))
    assert track(events, "activations")[1][0] == pytest.approx(1000 + 1000 * 0.1 / 0.6, abs=0.001)
    (process,) = (e["args"]["name"] for e in events if e["name"] == "process_name")
    assert process == "Memory: the ledger's step, stretched as a whole: its phases are others"


def test_a_trace_in_which_no_step_ended_stays_as_it_is() -> None:
    trace = {"traceEvents": traced()["traceEvents"][1:]}
    assert with_memory(trace, example_ledger.timeline()) == trace
