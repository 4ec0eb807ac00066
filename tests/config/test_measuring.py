import pytest
from conftest import refusal
from hypothesis import given
from hypothesis import strategies as st

from dpprof.config.measuring import PASS_NAMES, MeasuringConfig


@given(st.permutations(PASS_NAMES), st.integers(1, len(PASS_NAMES)), st.sampled_from([",", ", ", " ,"]))
def test_passes_run_in_their_fixed_order(order: list[str], count: int, comma: str) -> None:
    asked = {*order[:count], "clean"}
    fixed = ["clean", "alone", "pace", "memory", "trace", "ceilings"]
    fixed += ["ledger", "gradient_check", "verify"]
    expected = tuple(name for name in fixed if name in asked)
    assert MeasuringConfig(passes=comma.join(asked)).pass_names == expected


@pytest.mark.parametrize(
    ("passes", "shown"),
    [
        ("memory", "'memory'"),
        ("clean,leak", "'clean,leak'"),
        ("clean,", "'clean,'"),
        ("", "an empty text"),
        ("estimate", "'estimate'"),
    ],
)
def test_the_clean_pass_and_known_ones(passes: str, shown: str) -> None:
    others = "alone, pace, memory, trace, ceilings, ledger, gradient_check, verify"
    allowed = f"clean, and with it any of {others}"
    assert refusal(MeasuringConfig, passes=passes) == f"passes: got {shown}, allowed: {allowed}"


def test_counter_metrics_are_refused_where_nothing_is_counted() -> None:
    said = "counter_metrics: got 'full', allowed: basic, or with it counters=auto"
    assert refusal(MeasuringConfig, counter_metrics="full") == said
    assert MeasuringConfig(counter_metrics="full", counters="auto").counter_metrics == "full"
    assert "'nonsense'" in refusal(MeasuringConfig, counter_metrics="nonsense", counters="auto")
