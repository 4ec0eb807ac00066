import json

import example_counters
import pytest
from example_results import comparison, result

from dpprof.reports.comparison.comparison import Comparison

OF_VERSION_2 = ("phases", "at_peak", "compared")


def of_version_1(found: Comparison) -> str:
    """The file that an earlier dpprof wrote of the same runs."""
    data = json.loads(found.to_json())
    for cell in data["cells"]:
        for run in cell["runs"]:
            for name in OF_VERSION_2:
                del run[name]
    return json.dumps(data | {"schema_version": 1})


def compared() -> Comparison:
    results = [
        result(
            trainer,
            step_s=[0.1, 0.3],
            peak_mib=12,
            at_peak={"parameters": 4, "noise": 7},
            phase_ms={"forward": 30, "backward": 60},
            peak_in={"forward": 5, "backward": 11},
            moved=[("forward", "copy", 3), ("backward", "copy", 5)],
            name=f"{trainer}_{i}",
        )
        for trainer in ("StandardTrainer", "DPSGDTrainer")
        for i in range(2)
    ]
    for one in results:
        assert one.record is not None
        one.record.counters = example_counters.counters()
    return comparison(*results)


def test_a_comparison_of_version_1_says_the_same() -> None:
    now = compared()
    before = Comparison.from_json(of_version_1(now))
    for old, new in zip(before.cells, now.cells, strict=True):
        assert old.figures == new.figures
        assert old.at_peak == new.at_peak == {"parameters": 4, "noise": 7, "untracked": 1}
        assert old.phase_ms == new.phase_ms == pytest.approx({"forward": 30, "backward": 60})
        assert old.peak_by_phase == new.peak_by_phase == {"forward": 5, "backward": 11}
        assert old.moved_by_phase == new.moved_by_phase == {"forward": 3, "backward": 5}
        assert before.ratios(old) == now.ratios(new)
        assert before.ratios(old, old.runs[0]) == now.ratios(new, new.runs[0])
        for phase in ("forward", "backward"):
            read, known = old.phases[phase].counters, new.phases[phase].counters
            assert read is not None
            assert known is not None
            assert (read.kernel_ms, read.dram_mib) == (known.kernel_ms, known.dram_mib)
    assert "vs_standard/counters/dram_read_mib_ratio" in before.ratios(before.cells[1])


def test_what_was_read_from_version_1_is_written_as_version_2() -> None:
    before = Comparison.from_json(of_version_1(compared()))
    assert json.loads(before.to_json())["schema_version"] == 2
    assert Comparison.from_json(before.to_json()) == before
