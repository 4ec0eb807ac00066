"""Reads reports written for the tests (`reports/README.md`): the figures come out right, or a sentence."""

import re
from pathlib import Path

import pytest

from dpprof.config.counter_metrics import BASIC, DRAM_PCT, DRAM_READ, DRAM_WRITTEN, DURATION, L2_READ
from dpprof.drive.ncu.report import Launch, by_kernel, phase_within, read_csv, short_name
from dpprof.errors import CountersError, CountersUnavailable

REPORTS = Path(__file__).parent / "reports"


def read(name: str) -> list[Launch]:
    return read_csv((REPORTS / name).read_text(), name)


def test_a_whole_step() -> None:
    launches = read("step.csv")
    assert len(launches) == 11
    assert all(set(launch.values) == set(BASIC) for launch in launches)
    product = launches[2]
    assert product.kernel.startswith("sm80_xmma_gemm")
    assert product.ranges == ("phase:forward",)
    assert product.values[DURATION] == pytest.approx(40e-6)
    assert product.values[DRAM_READ] == 4 * 2**20
    assert product.values[L2_READ] == 262144
    assert sum(launch.values[DRAM_READ] for launch in launches) == 30019616
    assert [launch.ranges for launch in launches if not launch.ranges] == [()]


def test_messages_and_the_programs_own_output_are_skipped() -> None:
    add, mul = read("noise.csv")
    assert (add.kernel, add.ranges) == ("void add(float *)", ("phase:forward",))
    assert (mul.kernel, mul.ranges) == ("mul(float *)", ("phase:backward",))
    assert add.values == pytest.approx({DRAM_READ: 1000, DRAM_WRITTEN: 500, DURATION: 2e-6})
    assert mul.values == pytest.approx({DRAM_READ: 3000, DRAM_WRITTEN: 700, DURATION: 4e-6})


@pytest.mark.parametrize(
    ("name", "read_bytes", "written", "duration"),
    [("thousands.csv", 1_234_500, 2_250_000, 1500.25e-6), ("sm_120.csv", 1000, 500, 2e-6)],
)
def test_separators_scaled_units_and_other_chips_names_are_understood(
    name: str, read_bytes: int, written: int, duration: float
) -> None:
    (launch,) = read(name)
    assert launch.values == pytest.approx({DRAM_READ: read_bytes, DRAM_WRITTEN: written, DURATION: duration})


def test_a_missing_value_is_absent_not_zero() -> None:
    first, second, third = read("missing.csv")
    assert set(first.values) == {DRAM_READ, DURATION}
    assert set(second.values) == {DRAM_READ, DRAM_WRITTEN, DURATION}
    assert third.values[L2_READ] == 8


def test_several_ranges_around_a_launch() -> None:
    ranges = [("epoch 1", "phase:forward", "attention: layer 3"), ("epoch 1",), ()]
    assert [launch.ranges for launch in read("several_ranges.csv")] == ranges


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("empty.csv", "empty.csv holds no kernel launch"),
        ("nothing.csv", "nothing.csv holds no table of kernel launches"),
        ("details.csv", "details.csv is Nsight Compute's details page, not its raw page: export it with"),
        ("no_units.csv", "no_units.csv has no row of units below its header"),
        ("blank_units.csv", "line 2 of blank_units.csv gives dram__bytes_read.sum in 'no unit', where bytes"),
        ("torn.csv", "line 4 of torn.csv has 10 columns where its header has 15"),
        ("comma.csv", "line 3 of comma.csv gives dram__bytes_read.sum as '1.234.567', which is no number"),
        ("no_duration.csv", "no_duration.csv lacks gpu__time_duration.sum"),
    ],
)
def test_a_broken_report_gives_one_sentence(name: str, sentence: str) -> None:
    with pytest.raises(CountersError) as caught:
        read(name)
    assert str(caught.value).startswith(sentence)
    assert "\n" not in str(caught.value)
    assert not isinstance(caught.value, CountersUnavailable)


def test_a_permission_error_says_how_to_get_it() -> None:
    with pytest.raises(CountersUnavailable, match=r"ERR_NVGPUCTRPERM.*--cap-add=SYS_ADMIN"):
        read("permission.csv")


def test_units_of_other_metrics() -> None:
    """Scaled ones are brought to base units; a figure in a unit unknown here is left out, not guessed."""
    lines = (REPORTS / "sm_120.csv").read_text().splitlines()
    for name, unit, value in (
        ("sm__a.avg.per_second", "cycle/nsecond", "1.5"),
        ("sm__b.avg", "Kinst", "2"),
        ("sm__c.pct", "%", "7"),
        ("sm__d.sum", "furlong", "3"),
        ("sm__e.avg.per_second", "Mhz", "4"),
        ("device__name", "", "H200"),
    ):
        lines = [f'{line},"{cell}"' for line, cell in zip(lines, (name, unit, value), strict=True)]
    (launch,) = read_csv("\n".join(lines))
    found = {name: value for name, value in launch.values.items() if name.startswith(("sm__", "device"))}
    scaled = {"sm__a.avg.per_second": 1.5e9, "sm__b.avg": 2000, "sm__c.pct": 7, "sm__e.avg.per_second": 4e6}
    assert found == pytest.approx(scaled)


@pytest.mark.parametrize(
    ("name", "whole", "broken", "sentence"),
    [
        # The rest of its last figure would pass for all of it.
        ("step.csv", '"\n$', "", "line 13 of the report is no whole row of a table"),
        ("sm_120.csv", '"2000"', '""', r"line 3 of the report has no gpu__time_duration\.sum"),
        ("step.csv", r'("\(64, 64, 1\)",)"0"(.*\n)$', r'\1"1"\2', "kernels of 2 devices"),
    ],
)
def test_a_damaged_report_is_refused(name: str, whole: str, broken: str, sentence: str) -> None:
    text, num_damages = re.subn(whole, broken, (REPORTS / name).read_text())
    assert num_damages == 1
    with pytest.raises(CountersError, match=sentence):
        read_csv(text)


def test_launches_of_one_kernel_in_one_phase_are_one_row() -> None:
    found = by_kernel(read("step.csv"), BASIC)
    assert sum(row.launches for row in found.rows) == 11
    row = found.rows[0]
    assert (row.phase, row.kernel_class, row.launches) == ("backward", "matrix_product", 2)
    assert row.seconds == pytest.approx(140e-6)
    assert row.values[DRAM_READ] == 8388608 + 6291456
    assert row.values[DRAM_PCT] == pytest.approx((80 * 25 + 60 * 23) / 140)
    assert found.missing == {}
    assert [row.seconds for row in found.rows] == sorted((row.seconds for row in found.rows), reverse=True)


def test_the_classes_are_those_of_operators() -> None:
    found = by_kernel(read("step.csv"), BASIC)
    assert {(row.phase, row.kernel_class) for row in found.rows} == {
        *(("forward", of) for of in ("copy", "matrix_product", "attention", "loss")),
        ("zero_grad", "elementwise"),
        ("backward", "matrix_product"),
        ("clip", "norm_clip"),
        ("noise", "noise"),
        ("optimizer_step", "optimizer"),
        (None, "copy"),
    }


def test_a_metric_that_one_launch_lacks_has_no_total() -> None:
    found = by_kernel(read("missing.csv"), [DURATION, DRAM_READ, DRAM_WRITTEN, L2_READ])
    forward = next(row for row in found.rows if row.phase == "forward")
    assert forward.values == {DRAM_READ: 1500}
    assert found.missing == {
        DRAM_WRITTEN: "missing for 1 of 3 kernel launches",
        L2_READ: "missing for 2 of 3 kernel launches",
    }


def test_the_innermost_phase_counts() -> None:
    assert phase_within(("epoch", "phase:forward", "layer")) == "forward"
    assert phase_within(("phase:forward", "phase:clip")) == "clip"
    assert phase_within(("epoch",)) is None


def test_short_names() -> None:
    nested = "k<at::f(at::Iter &)::[lambda(float) (instance 1)]>"
    assert short_name("void add<float>(float *, void (*)(int))") == "add<float>"
    assert short_name(f"void {nested}(int, T1)") == nested
    for name in ("sm80_xmma_gemm", "odd)", "(anonymous)"):
        assert short_name(name) == name
