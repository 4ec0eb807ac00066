import example_ledger
import pytest

from dpprof.reports import traffic


def test_bars_are_made_of_classes_and_share_one_scale() -> None:
    bars = traffic.compute(example_ledger.ledger(), ["forward", "clip", "backward", "between phases"])
    assert [(bar.phase, bar.moved_mib) for bar in bars] == [
        ("forward", 14),
        ("clip", 0),
        ("backward", 26),
        ("between phases", 2),
    ]
    forward = [(part.operator_class, part.read_mib, part.written_mib, part.pct) for part in bars[0].parts]
    assert forward == [
        ("matrix_product", 6, 2, pytest.approx(100 * 8 / 26)),
        ("elementwise", 4, 2, pytest.approx(100 * 6 / 26)),
    ]
    assert [part.pct for part in bars[2].parts] == [100]
    assert list(traffic.legend(bars)) == ["matrix_product", "elementwise", "copy"]
