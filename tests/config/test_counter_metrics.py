import pytest

from dpprof.config.counter_metrics import (
    BASIC,
    DRAM_READ,
    DRAM_WRITTEN,
    DURATION,
    L2_READ,
    NVPROF,
    PRESETS,
    canonical,
    metric_names,
    resolve,
)
from dpprof.errors import ConfigError


def test_presets() -> None:
    assert metric_names("basic") == list(BASIC)
    assert metric_names("full")[: len(BASIC)] == list(BASIC)
    assert metric_names("full, basic") == list(PRESETS["full"])


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        *(NVPROF.items()),
        ("sm__a.avg,dram__bytes_read.sum,sm__a.avg", ["sm__a.avg", DRAM_READ]),
        # A rate is counted as its sum.
        ("dram__bytes_read.sum.per_second", [DRAM_READ]),
        ("dram__bytes_op_write.sum.per_second", [DRAM_WRITTEN]),
    ],
)
def test_single_names_and_nvprofs_come_with_the_duration_and_once(asked: str, names: list[str]) -> None:
    assert metric_names(asked) == [DURATION, *names]


@pytest.mark.parametrize(
    "name", ["", "dram_bytes", "dram__bytes_read", "regex:dram", "group:x", "a b__c.sum", "--set"]
)
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"counter_metrics: got .*, allowed: basic, full, a full name"):
        metric_names(f"basic,{name}")


def test_names_are_resolved_for_the_chip() -> None:
    available = {"gpu__time_duration", "dram__bytes_op_read", "dram__bytes_write"}
    names, missing = resolve([DURATION, DRAM_READ, DRAM_WRITTEN, L2_READ], available)
    assert names == [DURATION, "dram__bytes_op_read.sum", DRAM_WRITTEN]
    assert list(missing) == [L2_READ]
    assert [canonical(name) for name in names] == [DURATION, DRAM_READ, DRAM_WRITTEN]
