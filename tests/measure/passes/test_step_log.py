"""What the log of a step holds: its phases and its events."""

import pytest
import torch
from storage_lives import followed_storages, life_of
from torch.multiprocessing.reductions import StorageWeakRef

from dpprof.measure.passes.storages import Storages

storages = pytest.fixture(followed_storages)


def test_a_log_keeps_no_storage_alive(storages: Storages) -> None:
    storages.start_step()
    with storages.label_new("noise"), storages.label_surviving("activations"):
        tensor = torch.zeros(100)
    storage = StorageWeakRef(tensor.untyped_storage())
    del tensor
    assert storage.expired()
    del storage  # older torch keeps a storage's object as long as this
    life = storages.end_step().events[0].life
    assert (life.num_bytes, life.alive) == (400, False)


def test_phases_may_nest(storages: Storages) -> None:
    storages.start_step()
    with storages.in_phase("clip"):
        with storages.in_phase("noise"):
            inner = torch.zeros(1)
        outer = torch.zeros(1)
    after = torch.zeros(1)
    assert [life_of(storages, t).phase for t in (inner, outer, after)] == ["noise", "clip", None]
    log = storages.end_step()
    assert [(p.name, p.first_event, p.end_event) for p in log.phases] == [("noise", 0, 1), ("clip", 0, 2)]
    assert all(log.start <= p.start <= p.end <= log.end for p in log.phases)


def test_a_phase_has_the_events_within_it(storages: Storages) -> None:
    storages.start_step()
    a = torch.zeros(1)
    with storages.in_phase("forward"):
        b, c = torch.zeros(2), torch.zeros(3)
    del b
    with storages.in_phase("backward"):
        del a
    with storages.in_phase("clip"):
        pass
    log = storages.end_step()
    spans = [(p.name, p.first_event, p.end_event) for p in log.phases]
    assert spans == [("forward", 1, 3), ("backward", 4, 5), ("clip", 5, 5)]
    assert [event.num_bytes for event in log.events] == [4, 8, 12, -8, -4]
    assert storages.live_bytes() == 12 == c.nbytes


def test_a_phase_that_fails_still_ends(storages: Storages) -> None:
    storages.start_step()
    with pytest.raises(KeyError), storages.in_phase("clip"):
        raise KeyError
    assert storages.phase is None
    assert [phase.name for phase in storages.end_step().phases] == ["clip"]


def test_phases_outside_a_step_leave_no_span(storages: Storages) -> None:
    with storages.in_phase("forward"):
        kept = torch.zeros(1)
    storages.start_step()
    log = storages.end_step()
    assert log.phases == []
    assert life_of(storages, kept).phase == "forward"


def test_a_step_only_logs_what_happens_in_it(storages: Storages) -> None:
    a = torch.zeros(1)
    storages.start_step()
    b = torch.zeros(2)
    del a
    first = storages.end_step()
    del b
    c = torch.zeros(4)
    storages.start_step()
    second = storages.end_step()
    assert [num_bytes for _, num_bytes in first.present] == [4]
    assert [event.num_bytes for event in first.events] == [8, -4]
    assert all(first.start <= event.at <= first.end for event in first.events)
    assert [num_bytes for _, num_bytes in second.present] == [16]
    assert second.events == []
    assert c.numel() == 4
