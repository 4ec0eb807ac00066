import example_ledger
import pytest

from dpprof.reports import traffic_bars


def test_bars_are_made_of_classes_and_share_one_scale() -> None:
    bars = traffic_bars.compute(example_ledger.ledger(), ["forward", "clip", "backward", "between phases"])
    assert {bar.phase: bar.moved_mib for bar in bars} == {
        "forward": 14,
        "clip": 0,
        "backward": 26,
        "between phases": 2,
    }
    forward = bars[0].parts
    assert [(part.operator_class, part.read_mib, part.written_mib) for part in forward] == [
        ("matrix_product", 6, 2),
        ("elementwise", 4, 2),
    ]
    assert [part.pct for part in forward] == pytest.approx([100 * 8 / 26, 100 * 6 / 26])
    assert [part.pct for part in bars[2].parts] == [100]
    assert list(traffic_bars.legend(bars)) == ["matrix_product", "elementwise", "copy"]
