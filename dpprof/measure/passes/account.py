"""Turns a step's log into figures: the bytes alive at any moment, their peak and what they are for."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

from dpprof.measure.passes.storages import Life, StepLog
from dpprof.record.ledger import HeldTensor, LedgerResult, PhasePeak, StepTimeline, TrafficRow
from dpprof.vocabulary.categories import CATEGORIES
from dpprof.vocabulary.formats import listed_first

# Categories of storages of unknown purpose: made in the step, and there before it.
BORN, PRESENT = "temporary", "other"


class Account:
    """A step's storages, replayed from its log.

    A storage has its first category from birth on. Categories are known only after the step, and copied here,
    since later steps may relabel the same storages. `peak` is in bytes; `peak_event` is the index of the
    event that reached it (-1: the step's start).
    """

    def __init__(self, log: StepLog) -> None:
        self.log = log
        self._present = dict(log.present)
        self.start: dict[str, int] = defaultdict(int)
        for life, num_bytes in log.present:
            self.start[self._first_category(life)] += num_bytes
        self.peak, self.peak_event, self.at_peak = sum(self.start.values()), -1, _held(self.start)
        self.phase_peak: dict[str, PhasePeak] = {}
        self._phases_by_event: dict[int, set[str]] = defaultdict(set)
        for phase in log.phases:
            for index in range(phase.first_event - 1, phase.end_event):
                self._phases_by_event[index].add(phase.name)
        self.changes = list(self._changes())
        self.after_step = self._walk()
        self.storages, self.storage_index = self._storages()

    def _first_category(self, life: Life) -> str:
        return life.first_category or (PRESENT if life in self._present else BORN)

    def _changes(self) -> Iterator[tuple[str, int, str | None]]:
        """Yield each event's category, its bytes, and the category that they move to, if any."""
        category: dict[Life, str] = {}
        held = dict(self._present)
        for event in self.log.events:
            life = event.life
            now = category.setdefault(life, self._first_category(life))
            if event.category is None:
                held[life] = held.get(life, 0) + event.num_bytes
                yield now, event.num_bytes, None
            else:
                category[life] = event.category
                yield now, held.get(life, 0), event.category

    def _walk(self) -> dict[str, int]:
        """Follow the levels through the step, noting peaks. Returns the levels at its end."""
        levels = defaultdict(int, self.start)
        total = self.peak
        self._reach_phases(-1, total, levels)
        for index, (category, num_bytes, moved_to) in enumerate(self.changes):
            if moved_to is None:
                levels[category] += num_bytes
                total += num_bytes
            else:
                levels[category] -= num_bytes
                levels[moved_to] += num_bytes
            if total > self.peak:
                self.peak, self.peak_event, self.at_peak = total, index, _held(levels)
            self._reach_phases(index, total, levels)
        return _held(levels)

    def _reach_phases(self, index: int, total: int, levels: dict[str, int]) -> None:
        """Update the peaks of an event's phases. A phase includes the level before its first event."""
        for phase in self._phases_by_event.get(index, ()):
            known = self.phase_peak.get(phase)
            if known is None or total > known.num_bytes:
                self.phase_peak[phase] = PhasePeak(total, _held(levels))

    @property
    def peak_phase(self) -> str | None:
        """The phase of the peak; None between phases. A step begins within its first phase."""
        for phase in self.log.phases:
            if self.peak_event < 0 and phase.first_event == 0:
                return phase.name
            if phase.first_event <= self.peak_event < phase.end_event:
                return phase.name
        return None

    def _storages(self) -> tuple[list[HeldTensor], list[int]]:
        """Return all storages as they began, in order of birth, and the index of each event's storage."""
        began = dict(self._present)
        for event in self.log.events:
            began.setdefault(event.life, event.num_bytes)
        storages = [
            HeldTensor(
                num_bytes=num_bytes,
                category=self._first_category(life),
                shape=list(life.shape),
                dtype=life.dtype,
                name=life.name,
                module=life.module,
                phase=life.phase,
                operator=life.operator,
            )
            for life, num_bytes in began.items()
        ]
        index = {life: i for i, life in enumerate(began)}
        return storages, [index[event.life] for event in self.log.events]

    def result(self, traffic: list[TrafficRow]) -> LedgerResult:
        """Return the figures for the record."""
        born = {event.life for event in self.log.events} - self._present.keys()
        return LedgerResult(
            peak=self.peak,
            peak_phase=self.peak_phase,
            at_peak=self.at_peak,
            phase_peak=self.phase_peak,
            after_step=self.after_step,
            traffic=traffic,
            step_s=self.log.end - self.log.start,
            num_storages=len(born),
            growth=sum(self.after_step.values()) - sum(self.start.values()),
        )

    def timeline(self) -> StepTimeline:
        """Return the whole step, event by event."""
        start = self.log.start
        return StepTimeline(
            start=_held(self.start),
            seconds=[_since(start, event.at) for event in self.log.events],
            category=[category for category, _, _ in self.changes],
            num_bytes=[num_bytes for _, num_bytes, _ in self.changes],
            moved_to=[moved_to for _, _, moved_to in self.changes],
            phases=[
                replace(phase, start=_since(start, phase.start), end=_since(start, phase.end))
                for phase in self.log.phases
            ],
            step_s=self.log.end - start,
            peak_event=self.peak_event,
            storages=self.storages,
            storage_index=self.storage_index,
            num_present=len(self.log.present),
        )


def _since(start: float, at: float) -> float:
    """Return the seconds between two clock readings, rounded to nanoseconds against float noise."""
    return round(at - start, 9)


def _held(levels: dict[str, int]) -> dict[str, int]:
    held = (category for category, num_bytes in levels.items() if num_bytes)
    return {category: levels[category] for category in listed_first(held, CATEGORIES)}
