"""Flame graphs of the peak, whose weights are the peak."""

import json

import example_ledger
from format_readers import SPEEDSCOPE, flames

from dpprof.reports.formats.flame import collapsed, speedscope, stacks

MIB = example_ledger.MIB


def test_stacks_go_from_the_category_down_the_modules_to_the_tensor() -> None:
    assert stacks(example_ledger.timeline()) == {
        ("per_sample_gradients", "head", "weight [2, 2048, 1024] float32"): 16 * MIB,
        ("activations", "blocks", "0", "mlp_in", "aten::addmm [2, 1024, 1024] float32"): 8 * MIB,
        ("parameters", "head", "weight [1024, 1024] float32"): 4 * MIB,
        ("temporary", "aten::mul [] float32"): 2 * MIB,
    }


def test_equal_stacks_are_added_and_no_name_breaks_a_line() -> None:
    one = example_ledger.held(3, "activations", [8], "", "a;b\n.c", "forward", "aten::mm")
    timeline = example_ledger.timeline(storages=[one, one], num_present=2, storage_index=[], seconds=[])
    timeline.peak_event = -1
    found = stacks(timeline)
    assert found == {("activations", "a,b", "c", "aten::mm [8] float32"): 6 * MIB}
    assert collapsed(found) == f"activations;a,b;c;aten::mm [8] float32 {6 * MIB}\n"


def test_speedscope_has_every_stack_with_its_bytes() -> None:
    found = stacks(example_ledger.timeline())
    file = json.loads(json.dumps(speedscope(found, "a run")))
    SPEEDSCOPE.validate(file)
    assert flames(file) == found
    assert file["profiles"][0]["endValue"] == example_ledger.ledger().peak
    file["profiles"][0]["unit"] = "MiB"
    assert not SPEEDSCOPE.is_valid(file), "the schema refuses what is no profile"
