"""Reads the formats that dpprof writes of a step's memory, as strictly as can be."""

import math
from typing import Any

Event = dict[str, Any]


def replayed(made: dict[str, Any]) -> list[int]:
    """The bytes allocated after each event. What is freed must have been allocated so; nothing overlaps."""
    (trace,) = made["device_traces"]
    alive: dict[int, int] = {}
    levels = []
    for entry in trace:
        if entry["action"] == "alloc":
            start, end = entry["addr"], entry["addr"] + entry["size"]
            assert entry["size"] > 0
            assert all(end <= other or start >= other + size for other, size in alive.items())
            alive[start] = entry["size"]
        elif entry["action"] == "free_requested":
            assert alive[entry["addr"]] == entry["size"]
        elif entry["action"] == "free_completed":
            assert alive.pop(entry["addr"]) == entry["size"]
        levels.append(sum(alive.values()))
    blocks = made["segments"][0]["blocks"]
    assert {b["address"]: b["size"] for b in blocks if b["state"] == "active_allocated"} == alive
    assert sum(block["size"] for block in blocks) == made["segments"][0]["total_size"] >= max(levels)
    return levels


def check(trace: dict[str, Any]) -> list[Event]:
    """The events, which must be as the Trace Event Format says, as far as they are of our kinds."""
    events: list[Event] = trace["traceEvents"]
    for event in events:
        assert isinstance(event["name"], str)
        assert isinstance(event["pid"], int)
        assert math.isfinite(event["ts"])
        assert event["ts"] >= 0
        assert event["ph"] in {"M", "X", "C", "i"}
        if event["ph"] == "C":
            assert event["args"]
            assert all(type(value) is int and value >= 0 for value in event["args"].values())
        elif event["ph"] == "X":
            assert event["dur"] >= 0
        elif event["ph"] == "i":
            assert event["s"] in {"g", "p", "t"}
        else:
            assert event["name"] in {"process_name", "process_sort_index", "thread_name"}
    by_track: dict[str, list[float]] = {}
    for event in events:
        if event["ph"] == "C":
            by_track.setdefault(event["name"], []).append(event["ts"])
    assert all(moments == sorted(moments) for moments in by_track.values())
    return events


def track(events: list[Event], name: str) -> list[tuple[float, int]]:
    return [(e["ts"], e["args"]["bytes"]) for e in events if e["ph"] == "C" and e["name"] == name]
