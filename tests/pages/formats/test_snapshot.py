"""A memory snapshot of a step, replayed event by event."""

import dataclasses
import pickle
import pickletools
from typing import Any

import example_ledger
from format_readers import replayed
from hypothesis import given, settings
from hypothesis import strategies as st

from dpprof.pages.formats.snapshot import pickled, snapshot
from dpprof.record.ledger import StepTimeline

MIB = example_ledger.MIB


def test_the_example_event_by_event() -> None:
    made = snapshot(example_ledger.timeline())
    (trace,) = made["device_traces"]
    allocated = [(e["category"], e["size"] // MIB, e["time_us"]) for e in trace if e["action"] == "alloc"]
    assert allocated == [
        ("parameters", 4, 0),
        ("activations", 8, 100_000),
        ("temporary", 4, 150_000),
        ("per_sample_gradients", 16, 300_000),
        ("temporary", 2, 350_000),
        ("summed_gradients", 16, 500_000),
    ]
    assert [(frame["filename"], frame["name"]) for frame in trace[1]["frames"]] == [
        ("operator", "aten::addmm"),
        ("tensor", "[2, 1024, 1024] float32"),
        ("module", "blocks.0.mlp_in"),
        ("phase", "forward"),
        ("category", "activations"),
    ]
    assert max(replayed(made)) == example_ledger.ledger().peak


# What the viewer's unpickler knows (`unpickle` in torch/utils/viz/MemoryViz.js).
KNOWN = {
    "PROTO",
    "FRAME",
    "STOP",
    "MARK",
    "MEMOIZE",
    "BINPUT",
    "LONG_BINPUT",
    "BINGET",
    "LONG_BINGET",
    "NONE",
    "NEWTRUE",
    "NEWFALSE",
    "BININT",
    "BININT1",
    "BININT2",
    "LONG1",
    "BINFLOAT",
    "SHORT_BINUNICODE",
    "BINUNICODE",
    "EMPTY_LIST",
    "APPEND",
    "APPENDS",
    "LIST",
    "EMPTY_DICT",
    "SETITEM",
    "SETITEMS",
    "DICT",
    "EMPTY_TUPLE",
    "TUPLE",
    "TUPLE1",
    "TUPLE2",
    "TUPLE3",
}


def test_what_the_viewer_stumbles_over_is_not_there() -> None:
    large = example_ledger.held(2**17, "activations", [2**35], "größer", "head", "forward", "aten::mm")
    made = pickled(example_ledger.timeline(storages=[large] * 5))
    operations = [(code.name, argument) for code, argument, _ in pickletools.genops(made)]
    assert operations[0] == ("PROTO", 4)
    assert {name for name, _ in operations} <= KNOWN
    assert "LONG1" in {name for name, _ in operations}, "it has large numbers"
    (trace,) = pickle.loads(made)["device_traces"]
    assert [e["category"] for e in trace if e["action"] == "snapshot"] == ["unknown"]
    assert all({"addr", "size", "stream", "frames", "time_us"} <= set(entry) for entry in trace)


def sizes_of(trace: list[Any], action: str) -> list[int]:
    return [entry["size"] for entry in trace if entry["action"] == action]


def test_a_storage_that_is_resized_is_freed_and_allocated_anew() -> None:
    timeline = example_ledger.timeline(
        seconds=[0.1, 0.2],
        category=["parameters"] * 2,
        num_bytes=[MIB, -5 * MIB],
        moved_to=[None] * 2,
        storage_index=[0, 0],
        peak_event=0,
        phases=[],
    )
    (trace,) = snapshot(timeline)["device_traces"]
    assert sizes_of(trace, "alloc") == [4 * MIB, 5 * MIB]
    assert sizes_of(trace, "free_completed") == [4 * MIB, 5 * MIB]


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), max_size=40))
def test_any_step_is_replayed(resizes: list[tuple[int, int]]) -> None:
    """Storages of any size that come, grow, shrink and go, in any order."""
    held = dict.fromkeys(range(6), 0)
    index, changes, levels = [], [], [0]
    for which, size in resizes:
        index.append(which)
        changes.append(size - held[which])
        held[which] = size
        levels.append(sum(held.values()))
    storage = dataclasses.replace(example_ledger.timeline().storages[0], num_bytes=0)
    timeline = StepTimeline(
        start={},
        seconds=[0.0] * len(index),
        category=["activations"] * len(index),
        num_bytes=changes,
        moved_to=[None] * len(index),
        phases=[],
        step_s=1.0,
        peak_event=levels.index(max(levels)) - 1,
        storages=[storage] * 6,
        storage_index=index,
        num_present=0,
    )
    assert max(replayed(snapshot(timeline))) == max(levels)
