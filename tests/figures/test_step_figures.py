import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from record_metrics import metrics

from dpprof.record.record import Record


def test_latency_and_throughput() -> None:
    record = Record(
        {},
        {},
        step_s=[0.030, 0.010, 0.100, 0.020, 0.040],
        phase_s={"forward": [0.002, 0.009, 0.001], "backward": [0.004, 0.006]},
        samples_per_step=6,
        tokens_per_step=600,
    )
    # Sorted: 10 20 30 40 100; p95 lies 0.95 * 4 = 3.8 places in: 40 + 0.8 * 60.
    assert metrics(record) == pytest.approx(
        {
            "latency/step_ms_median": 30,
            "latency/step_ms_mean": 40,
            "latency/step_ms_p95": 88,
            "latency/step_ms_iqr": 40 - 20,
            "latency/forward_ms": 2,
            "latency/backward_ms": 5,
            "throughput/samples_per_s": 6 / 0.030,
            "throughput/tokens_per_s": 600 / 0.030,
        }
    )


def test_one_step_has_no_spread_and_no_tokens_no_token_throughput() -> None:
    found = metrics(Record({}, {}, step_s=[0.5], samples_per_step=2))
    assert found == {
        "latency/step_ms_median": 500,
        "latency/step_ms_mean": 500,
        "throughput/samples_per_s": 4,
    }


@settings(deadline=None)
@given(st.lists(st.floats(1e-6, 1e3), min_size=2, max_size=50))
def test_quantiles_are_those_of_numpy(steps: list[float]) -> None:
    found = metrics(Record({}, {}, step_s=steps))
    q25, q50, q75, q95 = 1e3 * np.percentile(steps, [25, 50, 75, 95])
    tolerance = 1e-9 * max(steps) * 1e3
    assert found["latency/step_ms_median"] == pytest.approx(q50, abs=tolerance)
    assert found["latency/step_ms_p95"] == pytest.approx(q95, abs=tolerance)
    assert found["latency/step_ms_iqr"] == pytest.approx(q75 - q25, abs=tolerance)
