"""What is alive at the peak as a flame graph, in bytes.

Collapsed stacks are for `flamegraph.pl`, the JSON is for speedscope (https://www.speedscope.app).

A stack begins with the category, goes down the modules, and ends with the tensor.
"""

from collections import Counter
from typing import Any

from dpprof.record.ledger import HeldTensor, StepTimeline

Stack = tuple[str, ...]

_SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def stacks(timeline: StepTimeline) -> dict[Stack, int]:
    """The bytes alive at the peak by stack, those of the same modules together. The timeline must have its
    storages.
    """
    found: Counter[Stack] = Counter()
    for tensor in timeline.tensors:
        found[_stack(tensor)] += tensor.num_bytes
    by_category: Counter[str] = Counter()
    for stack, num_bytes in found.items():
        by_category[stack[0]] += num_bytes
    return dict(sorted(found.items(), key=lambda item: (-by_category[item[0][0]], item[0])))


def collapsed(stacks: dict[Stack, int]) -> str:
    """A line for each stack, its frames joined by semicolons, and then its bytes (Brendan Gregg's format)."""
    return "".join(f"{';'.join(stack)} {num_bytes}\n" for stack, num_bytes in stacks.items())


def speedscope(stacks: dict[Stack, int], name: str) -> dict[str, Any]:
    """The file that speedscope opens."""
    index: dict[str, int] = {}
    samples = [[index.setdefault(frame, len(index)) for frame in stack] for stack in stacks]
    profile = {
        "type": "sampled",
        "name": "memory at the peak",
        "unit": "bytes",
        "startValue": 0,
        "endValue": sum(stacks.values()),
        "samples": samples,
        "weights": list(stacks.values()),
    }
    return {
        "$schema": _SCHEMA,
        "name": name,
        "exporter": "dpprof",
        "activeProfileIndex": 0,
        "shared": {"frames": [{"name": frame} for frame in index]},
        "profiles": [profile],
    }


def _stack(tensor: HeldTensor) -> Stack:
    """Category, modules from the outermost in, tensor. A parameter's name tells its modules too."""
    *owners, last = tensor.name.split(".")
    modules = tensor.module.split(".") if tensor.module else owners
    leaf = f"{last or tensor.operator} {tensor.shape} {tensor.dtype}"
    return tuple(_as_frame(part) for part in (tensor.category, *modules, leaf))


def _as_frame(text: str) -> str:
    """Text that can stand between semicolons on a line."""
    return " ".join(text.replace(";", ",").split())
