"""Every sentence of a verdict, by kind: each one whole, so that it can be read aloud and changed here alone.

What stands in braces is a value, with the way in which it is written after the colon.
"""

import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dpprof.vocabulary.formats import fixed, joined, listed, memory, milliseconds, number, size
from dpprof.vocabulary.trainers import short_name

_MOST_LISTED = 6


def _ratios(values: Sequence[float]) -> str:
    """Format ratios by the lowest and the highest; one close to 1 gets more decimals."""
    ends = (min(values), max(values))
    low, high = (fixed(end, 2 if abs(end - 1) >= 0.005 or end == 1 else 4) for end in ends)
    return low if low == high else f"{low} to {high}"


_WAYS: dict[str, Callable[[Any], str]] = {
    "name": short_name,
    "names": lambda trainers: joined([short_name(trainer) for trainer in trainers]),
    "and": joined,
    "several": lambda texts: listed(texts, _MOST_LISTED),
    "then": "; ".join,
    "comma": ", ".join,
    "ratios": _ratios,
    "ms": milliseconds,
    "number": number,
    "size": size,
    "memory": memory,
}


class _Writing(string.Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        if isinstance(value, list | tuple):
            value = [str(each) if isinstance(each, Said) else each for each in value]
        return _WAYS[format_spec](value) if format_spec in _WAYS else format(value, format_spec)


@dataclass(frozen=True)
class Said:
    """A sentence, or a part of one: its kind in `SENTENCES`, and its values."""

    kind: str
    values: Mapping[str, Any]

    def __str__(self) -> str:
        return _Writing().vformat(SENTENCES[self.kind], (), self.values)

    def __format__(self, spec: str) -> str:
        return str(self)


def said(kind: str, **values: Any) -> Said:
    """Return a sentence of a kind with its values."""
    return Said(kind, values)


# What opens a finding, by the first word of its kind.
TOPICS = {
    "use": "Use",
    "time": "Time",
    "memory": "Memory",
    "batch": "Largest batch",
    "savings": "Savings",
    "communication": "Communication",
    "none": "No verdict",
    "estimated": "Estimated",
    "fits": "Fits",
    "estimate": "Estimate",
    "launches": "Launch-bound",
}
# Topics that explain figures and recommend nothing.
EXPLAINING = ("estimated", "savings")
SENTENCES = {
    "use.both": (
        "For {subject}: train with {trainer:name}. Of the DP trainers it takes the least time and needs the "
        "least memory {where}."
    ),
    "use.smallest": (
        "For {subject}: train with {trainer:name}. Of the DP trainers it needs the least memory {where}, and "
        "no other is clearly faster."
    ),
    "use.either": (
        "For {subject}: train with {trainer:name} if its memory fits, else with {smaller:name}. At {place}, "
        "{trainer:name} takes {ms:ms} and {mib:size}, and {smaller:name} {smaller_ms:ms} and "
        "{smaller_mib:size}."
    ),
    "time.first": (
        "Of the DP trainers, {trainer:name} takes the least time {where}. The next one takes {lead:ratios} x "
        "as long."
    ),
    "time.first_and_standard": (
        "Of the DP trainers, {trainer:name} takes the least time {where}, {ratios:ratios} x as long as "
        "standard. The next one takes {lead:ratios} x as long."
    ),
    "time.several": "Among the DP trainers, {won:then}.",
    "time.won": "{trainer:name} takes the least time {where}",
    "time.once": "Each trainer was measured once; --repeats 3 shows how much runs differ.",
    "memory.first": (
        "Of the DP trainers, {trainer:name} needs the least memory {where}. The next one needs {lead:ratios} "
        "x as much."
    ),
    "memory.first_and_standard": (
        "Of the DP trainers, {trainer:name} needs the least memory {where}, {ratios:ratios} x as much as "
        "standard. The next one needs {lead:ratios} x as much."
    ),
    "memory.several": "Among the DP trainers, {won:then}.",
    "memory.won": "{trainer:name} needs the least memory {where}",
    "alike": "{trainers:names} cannot be told apart {where}",
    "too_few_steps": "too few steps were timed to call one the best {where}",
    "batch": "Memory ran out {lacks:then}.",
    "out_of_memory": "at {place} with {trainers:names}",
    "out_of_memory.but_not_all": "at {place} with {trainers:names}, while {fitting:names} fitted",
    "out_of_memory.elsewhere": "and at {number} more places",
    "savings": (
        "The documented loop keeps memory that a step does not need. These changes lower the peak; loop=lean "
        "makes them all:"
    ),
    "savings.of": "{trainer:name} at {place}: {savings:then}.",
    "saved": "{change}: -{mib:size}",
    "saved.nothing": "{change}: nothing by itself",
    "saved.both": "both: -{mib:size}",
    "communication": "What each rank sends to others in a step:",
    "communication.predicted": (
        "What each rank sends to others in a step, and the time that this is predicted to take:"
    ),
    "communication.exposed": (
        "What each rank sends to others in a step, and how much longer the step takes than alone:"
    ),
    "communication.both": (
        "What each rank sends to others in a step, the time that this is predicted to take, and how much "
        "longer a measured step takes than alone:"
    ),
    "communication.place": "{place}: {sent:comma}.",
    "sent": "{mib:memory} with {trainer:name}",
    "sent.predicted": "{mib:memory} with {trainer:name} ({ms:ms})",
    "sent.exposed": "{mib:memory} with {trainer:name} ({ms:ms} exposed, {pct:.0f} % of the step)",
    "none.finished": "No experiment finished.",
    "none.calm": "Only step times were measured, and they were disturbed.",
    "none.compared": (
        "Too little was measured to set trainers against each other: it takes peaks (passes=clean,memory) or "
        "{steps} timed steps."
    ),
    "none.together": "Nothing here was measured with two trainers under the same settings.",
    "estimated": "Nothing was run: the figures come from fake tensors, which have shapes but no data.",
    "estimated.some": (
        "{number} of {total} experiments were not run: their figures come from fake tensors, which have "
        "shapes but no data."
    ),
    "estimated.measured_too": "Where an experiment was measured too, the measurement counts.",
    "estimated.rests_on": "The estimates rest on these assumptions:",
    "assumed": "{text}.",
    "fits.one": "The experiment fits {device}, as estimated.",
    "fits.all": "All {number} experiments fit {device}, as estimated.",
    "fits.not": "{number} of {total} do not fit {device}: {needs:several}.",
    "fits.unclear": (
        "{number} of {total} may or may not fit {device}, as parts are in doubt: {needs:several}."
    ),
    "needs": "{trainer:name} at {place} ({mib:memory})",
    "estimate": "For {larger}{model}, {settings}, estimates say: {start}",
    "estimate.on_device": "For {larger}{model} on {device}, {settings}, estimates say: {start}",
    "start.none_fits": "no DP trainer fits. {trainer:name} {least}.",
    "start": "start with {trainer:name}. It {least}.",
    "start.timed": (
        "start with {trainer:name}. It {least}. A step takes {time} against {others:and}: predicted."
    ),
    "start.faster": (
        "start with {trainer:name}. It fits, and a step takes {time} against {others:and}: predicted. For "
        "larger batches, {smallest:name} {least}. Measure both."
    ),
    "least": "needs the least memory, {mib:memory} against {others:and}",
    "least.of_those_alike": (
        "needs the least memory, {mib:memory} against {others:and} (of those alike, it was the fastest where "
        "all were measured, on a CPU)"
    ),
    "memory_of": "{trainer:name} {mib:memory}",
    "time_of": "{trainer:name} {time}",
    "fit.all": "All fit.",
    "fit.not_one": "{trainers:names} does not fit.",
    "fit.not": "{trainers:names} do not fit.",
    "fit.unclear": "{trainers:names} may or may not fit.",
    "growth": "From batch {less} to {more}, the need grows by this: {added:and}.",
    # Steps whose GPU mostly waits.
    "launches": (
        "The GPU is predicted to wait more than half of the step for the host to issue operators: "
        "{shares:several}."
    ),
    "launches.at": (
        "At {place}, the GPU is predicted to wait more than half of the step for the host to issue "
        "operators: {shares:several}."
    ),
    "launches.at_some": (
        "At {place}, and likewise at {others}, the GPU is predicted to wait more than half of "
        "the step for the host to issue operators: {shares:several}."
    ),
    "launches.help": "What helps:",
    "waiting": "{pct:.0f} % with {step}",
    "step": "{trainer:name}{size} ({operators:,} operators)",
    "took": "{ms:ms} with {step}",
    "help.larger_batch": (
        "Take a larger physical batch if one fits (`dpprof fit` finds the largest): most trainers issue as "
        "many operators for more samples."
    ),
    "help.larger_batch_and_logical": (
        "Take a larger physical batch if one fits (`dpprof fit` finds the largest): most trainers issue as "
        "many operators for more samples. Here that is a larger logical batch, too."
    ),
    "help.larger_logical_batch": (
        "Take a larger logical batch, whose noise and steps differ: a device holds {holds} samples at once, "
        "and hardly any step gives it more than {given:,}."
    ),
    "help.fewer_operators": (
        "Train with fewer operators. By prediction, a step takes {fastest} against {slower:and}."
    ),
    "help.lists_of_tensors": (
        "Clip, add noise and update by multi-tensor functions (`torch._foreach_add_`) or on one flat buffer. "
        "Tensor by tensor, these phases take much of the host's time: {slow:several}."
    ),
    "tensor_by_tensor": "{pct:.0f} % with {trainer:name}{size} ({phases:and})",
    "help.graph": (
        "Replay the step as a CUDA graph (`torch.cuda.graph`), which the host launches at once. All shapes "
        "must stay the same, so fill up Poisson-sampled batches, and nothing may wait for data, as `.item()` "
        "and `torch.unique` do. Predictions do not include this."
    ),
    "help.graph_or_compiled": (
        "Replay the step as a CUDA graph (`torch.cuda.graph`, or without privacy "
        '`torch.compile(mode="reduce-overhead")`), which the host launches at once. All shapes must stay the '
        "same, so fill up Poisson-sampled batches, and nothing may wait for data, as `.item()` and "
        "`torch.unique` do. Predictions do not include this."
    ),
}
