"""A run's memory in other programs' formats: as files of its folder, or one at a time."""

import json
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from dpprof.errors import ConfigError, DpprofError
from dpprof.json_files import naming, read_json
from dpprof.pages.formats import perfetto, snapshot
from dpprof.pages.report import Report
from dpprof.record.figures.results import Result
from dpprof.record.files import write_bytes, write_gzipped_json
from dpprof.record.ledger import HeldTensor, StepTimeline

# Of a trace, which holds every operator and kernel: bytes, unpacked.
_LARGEST_TRACE = 2**30


def collapsed(timeline: StepTimeline) -> str:
    """Return the peak as collapsed stacks in bytes, for `flamegraph.pl` and speedscope.

    Frames are category, modules from the outermost, tensor. The timeline must have its storages.
    """
    stacks: Counter[tuple[str, ...]] = Counter()
    by_category: Counter[str] = Counter()
    for tensor in timeline.tensors:
        stacks[_stack(tensor)] += tensor.num_bytes
        by_category[tensor.category] += tensor.num_bytes
    ordered = sorted(stacks, key=lambda stack: (-by_category[stack[0]], stack))
    return "".join(f"{';'.join(stack)} {stacks[stack]}\n" for stack in ordered)


def _stack(tensor: HeldTensor) -> tuple[str, ...]:
    """Return the frames, modules also from a parameter's name; no frame may have a semicolon or newline."""
    *owners, last = tensor.name.split(".")
    modules = tensor.module.split(".") if tensor.module else owners
    leaf = f"{last or tensor.operator} {tensor.shape} {tensor.dtype}"
    return tuple(" ".join(part.replace(";", ",").split()) for part in (tensor.category, *modules, leaf))


def _tracks(result: Result, timeline: StepTimeline, trace: Path | None) -> dict[str, Any]:
    """Return the counter tracks of memory, in a trace of torch.profiler if there is one."""
    if trace is not None:
        return perfetto.with_memory(_read_trace(trace), timeline)
    if result.config.is_estimate:
        which = "estimated; the time is that of fake tensors, not of a device"
    else:
        which = "the step under the ledger, which slows it down"
    return perfetto.own_trace(timeline, which)


def _read_trace(path: Path) -> dict[str, Any]:
    """Read a trace of torch.profiler. Raises DpprofError if it is damaged."""
    trace = read_json(path, _LARGEST_TRACE)
    with naming(path):
        if not isinstance(trace, dict) or not isinstance(trace.get("traceEvents"), list):
            raise DpprofError("it holds no events")
        return trace


FORMATS: dict[str, Callable[[Result, StepTimeline], bytes]] = {
    "snapshot": lambda _, timeline: snapshot.pickled(timeline),
    "perfetto": lambda result, timeline: json.dumps(
        _tracks(result, timeline, next(reversed(result.folder.traces()), None))
    ).encode(),
    "collapsed": lambda _, timeline: collapsed(timeline).encode(),
}


def export(result: Result, form: str) -> bytes:
    """Return a run in one of the formats. Raises ConfigError if its ledger lacks the data."""
    timeline = result.folder.read_timeline()
    if timeline is None:
        raise ConfigError(
            f"format: got {form!r}, but run {result.name} has no ledger, which it is made from "
            "(--passes with ledger keeps one)"
        )
    return FORMATS[form](result, timeline)


def write_format(form: str, result: Result) -> list[Path]:
    """Write the memory snapshot or the collapsed stacks, if the ledger has the data. Returns the file."""
    folder, timeline = result.folder, result.folder.read_timeline()
    if timeline is None:
        return []
    path = folder.memory_snapshot if form == "snapshot" else folder.peak_stacks
    write_bytes(path, FORMATS[form](result, timeline))
    return [path]


def write_memory_tracks(result: Result) -> list[Path]:
    """Add the memory by category to torch.profiler's traces, or to a new trace. Returns the files."""
    folder, timeline = result.folder, result.folder.read_timeline()
    if timeline is None:
        return []
    traces = folder.traces()
    for path in traces or [folder.memory_trace]:
        write_gzipped_json(path, _tracks(result, timeline, path if traces else None))
    return traces or [folder.memory_trace]


REPORTS = (
    Report("memory_snapshot.pickle", version=1, write=partial(write_format, "snapshot")),
    Report("memory_trace.json.gz", version=1, write=write_memory_tracks),
    Report("peak_memory.collapsed", version=2, write=partial(write_format, "collapsed")),
)
