"""What the script of the memory timeline page draws and lists: every event of the step and every storage."""

from dataclasses import dataclass

from dpprof.record.ledger import StepTimeline
from dpprof.reports.colors import category_color, words
from dpprof.reports.levels import clock
from dpprof.reports.packed import short
from dpprof.reports.tables import ATEN, made_in, shape_words
from dpprof.vocabulary.categories import CATEGORIES
from dpprof.vocabulary.order import listed_first

_NOT_MOVED = -1


@dataclass(frozen=True)
class StorageColumns:
    """The storages of a step in order of birth. `owner` is the parameter or the module."""

    bytes: list[int]
    category: list[int]
    owner: list[str]
    shape: list[str]
    dtype: list[str]
    phase: list[str]
    operator: list[str]


@dataclass(frozen=True)
class StepData:
    """The step as columns. Categories are indices into `names`, which are in the order in which they are
    stacked; `words` and `colors` are theirs.

    `ms` has the step's start, each event and the step's end. Event i changed `category[i]` by `bytes[i]`, or
    moved these to `moved[i]` unless that is -1. `phases` are name, start and end in ms, first event, and the
    event after the last. `peak` is the index of the peak in `ms`. `storages` is None in a folder of dpprof
    0.2; else event i is of `storage[i]`, and the first `present` were there at the start.
    """

    names: list[str]
    words: list[str]
    colors: list[str]
    ms: list[float]
    start: list[int]
    category: list[int]
    bytes: list[int]
    moved: list[int]
    phases: list[tuple[str, float, float, int, int]]
    peak: int
    storages: StorageColumns | None
    storage: list[int]
    present: int


def compute(timeline: StepTimeline, phase_s: dict[str, float]) -> StepData:
    """The step with each phase as wide as `phase_s` has it (`levels.clock`)."""
    names = listed_first((*timeline.start, *timeline.category, *filter(None, timeline.moved_to)), CATEGORIES)
    index = {name: i for i, name in enumerate(names)}
    ms, spans = clock(timeline, phase_s)
    return StepData(
        names=names,
        words=[words(name) for name in names],
        colors=[category_color(name) for name in names],
        ms=[short(at) for at in ms],
        start=[timeline.start.get(name, 0) for name in names],
        category=[index[name] for name in timeline.category],
        bytes=timeline.num_bytes,
        moved=[_NOT_MOVED if name is None else index[name] for name in timeline.moved_to],
        phases=[
            (span.name, short(span.start_ms), short(span.end_ms), phase.first_event, phase.end_event)
            for span, phase in zip(spans, timeline.phases, strict=True)
        ],
        peak=timeline.peak_event + 1,
        storages=_storages(timeline, index) if timeline.storages else None,
        storage=timeline.storage_index,
        present=timeline.num_present,
    )


def _storages(timeline: StepTimeline, index: dict[str, int]) -> StorageColumns:
    storages = timeline.storages
    return StorageColumns(
        bytes=[each.num_bytes for each in storages],
        category=[index[each.category] for each in storages],
        owner=[each.name or each.module for each in storages],
        shape=[shape_words(each.shape) for each in storages],
        dtype=[each.dtype for each in storages],
        phase=[made_in(each, was_present=i < timeline.num_present) for i, each in enumerate(storages)],
        operator=[each.operator.removeprefix(ATEN) for each in storages],
    )
