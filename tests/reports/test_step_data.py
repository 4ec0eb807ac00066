"""What the timeline page's script is given, replayed as the script does."""

import dataclasses

import example_ledger
import pytest

from dpprof.reports import step_data
from dpprof.reports.packed import packed, unpacked
from dpprof.reports.tables import BEFORE, BETWEEN

MIB = example_ledger.MIB
WIDTHS = {"forward": 0.05, "backward": 0.1}


def test_levels_can_be_added_up_from_the_columns() -> None:
    step = step_data.compute(example_ledger.timeline(), WIDTHS)
    now = list(step.start)
    total = [sum(now)]
    for category, num_bytes, moved in zip(step.category, step.bytes, step.moved, strict=True):
        now[category] += num_bytes if moved < 0 else -num_bytes
        if moved >= 0:
            now[moved] += num_bytes
        total.append(sum(now))
    assert [held // MIB for held in total] == [4, 12, 16, 12, 28, 30, 22, 20, 20]
    assert max(total) == total[step.peak]
    assert dict(zip(step.names, now, strict=True))["summed_gradients"] == 16 * MIB


def test_each_storage_says_where_it_comes_from() -> None:
    timeline = example_ledger.timeline()
    storages = [*timeline.storages[:-1], dataclasses.replace(timeline.storages[-1], phase=None)]
    step = step_data.compute(dataclasses.replace(timeline, storages=storages), WIDTHS)
    columns = step.storages
    assert columns is not None
    assert columns.owner == ["head.weight", "blocks.0.mlp_in", "blocks.0.mlp_in", "head.weight", ""]
    assert columns.phase == [BEFORE, "forward", "forward", "backward", BETWEEN]
    assert columns.operator == ["empty", "addmm", "gelu", "bmm", "mul"]
    assert columns.shape[-2:] == ["2 x 2048 x 1024", "scalar"]
    assert [step.names[i] for i in columns.category] == [each.category for each in storages]
    assert step.storage == timeline.storage_index


def test_a_folder_of_an_older_version_has_levels_and_no_storages() -> None:
    older = example_ledger.timeline(storages=[], storage_index=[], num_present=0)
    step = step_data.compute(older, WIDTHS)
    assert step.storages is None
    assert step.ms == pytest.approx([0, 12.5, 25, 37.5, 66.667, 94.444, 122.22, 133.33, 150, 150], rel=1e-4)


def test_packed_data_is_the_same_again_and_needs_no_escaping() -> None:
    step = step_data.compute(example_ledger.timeline(), WIDTHS)
    text = packed({"step": step, "text": "</script> größer"})
    assert set("<>&\"'").isdisjoint(text)
    read = unpacked(text)
    assert read["text"] == "</script> größer"
    assert read["step"]["bytes"] == step.bytes
    assert read["step"]["storages"]["shape"] == dataclasses.asdict(step)["storages"]["shape"]
