"""A run's memory in the formats that other programs open: as files of its folder, and one at a time."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpprof.errors import ConfigError, DpprofError
from dpprof.figures.results import Result
from dpprof.json_files import naming, read_json
from dpprof.record.files import write_bytes, write_gzipped_json
from dpprof.record.ledger import StepTimeline
from dpprof.reports.formats import flame, perfetto, snapshot

# A trace has more events than any other file: the most bytes of one.
_LARGEST_TRACE = 2**30


@dataclass(frozen=True)
class Format:
    """A format of a run: what makes the bytes of its file.

    `needs_storages` says that the ledger must have noted every storage; those of dpprof 0.2 have not.
    """

    make: Callable[[Result, StepTimeline], bytes]
    needs_storages: bool = True


def _perfetto(result: Result, timeline: StepTimeline) -> bytes:
    traces = result.folder.traces()
    made = (
        perfetto.with_memory(_read_trace(traces[-1]), timeline) if traces else _trace_alone(result, timeline)
    )
    return json.dumps(made).encode()


def _read_trace(path: Path) -> dict[str, Any]:
    """A trace of torch.profiler. Raises DpprofError if it is damaged."""
    trace = read_json(path, _LARGEST_TRACE)
    with naming(path):
        if not isinstance(trace, dict) or not isinstance(trace.get("traceEvents"), list):
            raise DpprofError("it holds no events")
        return trace


def _trace_alone(result: Result, timeline: StepTimeline) -> dict[str, object]:
    if result.config.is_estimate:
        which = "estimated; the time is that of fake tensors, not of a device"
    else:
        which = "the step under the ledger, which slows it down"
    return perfetto.own_trace(timeline, which)


def _snapshot(result: Result, timeline: StepTimeline) -> bytes:
    return snapshot.pickled(timeline)


def _collapsed(result: Result, timeline: StepTimeline) -> bytes:
    return flame.collapsed(flame.stacks(timeline)).encode()


def _speedscope(result: Result, timeline: StepTimeline) -> bytes:
    return json.dumps(flame.speedscope(flame.stacks(timeline), result.name)).encode()


FORMATS = {
    "snapshot": Format(_snapshot),
    "perfetto": Format(_perfetto, needs_storages=False),
    "collapsed": Format(_collapsed),
    "speedscope": Format(_speedscope),
}


def export(result: Result, form: str) -> bytes:
    """One of the formats of a run, as the file's bytes. Raises ConfigError where no ledger gives it."""
    timeline = result.folder.read_timeline()
    if timeline is None:
        raise ConfigError(
            f"format: got {form!r}, but run {result.name} has no ledger, which it is made from "
            "(--passes with ledger keeps one)"
        )
    if FORMATS[form].needs_storages and not timeline.storages:
        raise ConfigError(
            f"format: got {form!r}, but the ledger of run {result.name} lists only its largest tensors: "
            "an earlier dpprof measured it; measure it again"
        )
    return FORMATS[form].make(result, timeline)


def write_snapshot(result: Result) -> list[Path]:
    """Write the memory snapshot. Returns the file, none where the ledger does not give it."""
    return _write(result, "snapshot", result.folder.memory_snapshot)


def write_flame_graphs(result: Result) -> list[Path]:
    """Write the flame graph of the peak in both formats. Returns the files."""
    folder = result.folder
    return _write(result, "collapsed", folder.peak_stacks) + _write(
        result, "speedscope", folder.peak_speedscope
    )


def write_memory_tracks(result: Result) -> list[Path]:
    """Put the memory by category into torch.profiler's traces; where there are none, into a trace of its own.
    Returns the files.
    """
    folder, timeline = result.folder, result.folder.read_timeline()
    if timeline is None:
        return []
    traces = folder.traces()
    for path in traces:
        write_gzipped_json(path, perfetto.with_memory(_read_trace(path), timeline))
    if traces:
        return traces
    write_gzipped_json(folder.memory_trace, _trace_alone(result, timeline))
    return [folder.memory_trace]


def _write(result: Result, form: str, path: Path) -> list[Path]:
    timeline = result.folder.read_timeline()
    if timeline is None or not timeline.storages:
        return []
    write_bytes(path, FORMATS[form].make(result, timeline))
    return [path]
