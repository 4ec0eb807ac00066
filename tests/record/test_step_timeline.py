"""The step's timeline as plain data, replayed and read back."""

import example_ledger
import pytest

from dpprof.errors import DpprofError
from dpprof.record.ledger import StepTimeline

MIB = example_ledger.MIB


def test_what_is_alive_after_an_event_is_replayed() -> None:
    timeline = example_ledger.timeline()
    levels = [4, 12, 16, 12, 28, 30, 22, 20, 20]
    alive = [[*timeline.alive_after(event).values()] for event in range(-1, 8)]
    assert [sum(row.num_bytes for row in rows) for rows in alive] == [MIB * level for level in levels]
    assert [row.category for row in alive[-1]] == ["summed_gradients", "parameters"]
    assert [row.num_bytes // MIB for row in timeline.tensors] == [16, 8, 4, 2], "largest first, at the peak"
    assert timeline.num_tensors == 4


def test_a_file_without_storages_is_refused() -> None:
    data = example_ledger.timeline().to_dict()
    del data["storages"]
    with pytest.raises(DpprofError, match="storages is missing"):
        StepTimeline.from_dict(data)
