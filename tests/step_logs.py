"""Logs of a step, written by hand."""

from dpprof.measure.passes.storages import Event, Life, PhaseSpan, StepLog


def life(num_bytes: int, category: str | None = None, name: str = "") -> Life:
    return Life(
        num_bytes,
        shape=(num_bytes,),
        dtype="uint8",
        operator="aten::empty",
        phase="forward",
        module="head",
        name=name,
        category=category,
        first_category=category,
    )


def log(
    events: list[Event], present: list[Life] | None = None, phases: list[PhaseSpan] | None = None
) -> StepLog:
    return StepLog(10.0, [(p, p.num_bytes) for p in present or []], events, phases or [], end=20.0)


def born(life: Life, at: float = 11.0) -> Event:
    return Event(at, life, life.num_bytes)


def died(life: Life, at: float = 12.0) -> Event:
    return Event(at, life, -life.num_bytes)


def moved(life: Life, category: str, at: float = 11.5) -> Event:
    life.category = category
    return Event(at, life, 0, category)


def span(name: str, first_event: int, end_event: int) -> PhaseSpan:
    return PhaseSpan(name, 10.0 + first_event, 10.0 + end_event, first_event, end_event)
