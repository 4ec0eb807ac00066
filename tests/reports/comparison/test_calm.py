import pytest
from record_metrics import metrics

from dpprof.record.record import Record
from dpprof.reports.comparison.calm import disturbances

TWO = {"cpu_cores": "2", "torch_threads": "2"}
STEADY = [0.1, 0.101, 0.1, 0.102, 0.1]


def of(
    step_s: list[float] = STEADY,
    environment: dict[str, str] = TWO,
    *,
    others: float | None = None,
    switches: int | None = None,
) -> list[str]:
    """The judgement on a record, `others` in processors."""
    timed = sum(step_s)
    record = Record({}, environment, step_s=step_s, timed_s=timed, involuntary_switches=switches)
    record.others_processor_s = None if others is None else others * timed
    return disturbances(metrics(record), step_s, environment)


def test_a_quiet_run_is_calm() -> None:
    assert of(others=0.1, switches=50) == []


def test_what_was_not_measured_speaks_against_nothing() -> None:
    assert of() == []
    assert disturbances({}, [], {}) == []


def test_a_busy_neighbour_disturbs_though_the_steps_are_steady() -> None:
    assert of(others=0.5) == ["other processes used 0.5 of 2 processors"]


@pytest.mark.parametrize(
    ("environment", "others", "is_calm"),
    [
        ({"cpu_cores": "16", "torch_threads": "8"}, 1.0, True),
        ({"cpu_cores": "16", "torch_threads": "8"}, 8.2, True),
        ({"cpu_cores": "16", "torch_threads": "8"}, 8.5, False),
        ({"cpu_cores": "16", "torch_threads": "16"}, 1.0, False),
        ({"cpu_cores": "2", "torch_threads": "1"}, 1.0, True),
        ({"cpu_cores": "2", "torch_threads": "1"}, 1.4, False),
        ({"cpu_cores": "2", "torch_threads": "4"}, 0.5, False),
        ({"cpu_cores": "2", "torch_threads": "2", "gpu": "H100"}, 1.0, True),
        ({"cpu_cores": "2", "torch_threads": "2", "gpu": "H100"}, 1.5, False),
        ({}, 0.5, False),
    ],
)
def test_processors_that_the_step_leaves_free_may_be_busy(
    environment: dict[str, str], others: float, is_calm: bool
) -> None:
    assert (of(environment=environment, others=others) == []) is is_calm


def test_many_involuntary_switches_disturb() -> None:
    assert of(switches=60, others=0.0) == []  # in half a second
    assert of(switches=101) == ["it was preempted 201 times a second"]


def test_restless_steps_disturb() -> None:
    (why,) = of([0.024, 0.024, 0.024, 0.033, 0.033, 0.033])
    assert why == "the interquartile range of its steps is 32 % of their median"
    assert of([0.03, 0.03, 0.03, 0.036, 0.036, 0.036]) == []


def test_one_tick_of_a_short_measurement_is_not_a_neighbour() -> None:
    """The kernel counts others' time by the 10 ms: two of them in 20 ms of steps are within its error."""
    assert of([0.002] * 10, others=1.0, switches=5) == []
    assert of([0.01] * 10, others=0.6) == ["other processes used 0.6 of 2 processors"]


def test_every_reason_is_told() -> None:
    assert len(of([0.1, 0.1, 0.1, 0.2, 0.2, 0.2, 0.3], others=1.0, switches=300)) == 3
