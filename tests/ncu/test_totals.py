from pathlib import Path

import pytest

from dpprof.config.counter_metrics import BASIC, DRAM_PCT, DRAM_READ, DRAM_WRITTEN, DURATION, L2_READ
from dpprof.ncu.report import read_csv
from dpprof.ncu.totals import by_kernel, phase_of, short_name

REPORTS = Path(__file__).parent / "reports"


def test_launches_of_one_kernel_in_one_phase_are_one_row() -> None:
    found = by_kernel(read_csv((REPORTS / "step.csv").read_text()), BASIC)
    assert sum(row.launches for row in found.rows) == 11
    row = found.rows[0]
    assert (row.phase, row.kernel_class, row.launches) == ("backward", "matrix_product", 2)
    assert row.seconds == pytest.approx(140e-6)
    assert row.values[DRAM_READ] == 8388608 + 6291456
    assert row.values[DRAM_PCT] == pytest.approx((80 * 25 + 60 * 23) / 140)
    assert found.missing == {}
    assert [row.seconds for row in found.rows] == sorted((row.seconds for row in found.rows), reverse=True)


def test_the_classes_are_those_of_operators() -> None:
    found = by_kernel(read_csv((REPORTS / "step.csv").read_text()), BASIC)
    assert {(row.phase, row.kernel_class) for row in found.rows} == {
        ("zero_grad", "elementwise"),
        ("forward", "copy"),
        ("forward", "matrix_product"),
        ("forward", "attention"),
        ("forward", "loss"),
        ("backward", "matrix_product"),
        ("clip", "norm_clip"),
        ("noise", "noise"),
        ("optimizer_step", "optimizer"),
        (None, "copy"),
    }


def test_a_metric_that_one_launch_lacks_has_no_total() -> None:
    found = by_kernel(
        read_csv((REPORTS / "missing.csv").read_text()), [DURATION, DRAM_READ, DRAM_WRITTEN, L2_READ]
    )
    forward = next(row for row in found.rows if row.phase == "forward")
    assert forward.values == {DRAM_READ: 1500}
    assert found.missing == {
        DRAM_WRITTEN: "missing for 1 of 3 kernel launches",
        L2_READ: "missing for 2 of 3 kernel launches",
    }


def test_only_what_was_asked_for_is_kept() -> None:
    found = by_kernel(read_csv((REPORTS / "step.csv").read_text()), [DURATION, DRAM_READ])
    assert all(set(row.values) == {DRAM_READ} for row in found.rows)


def test_the_innermost_phase_counts() -> None:
    assert phase_of(("epoch", "phase:forward", "layer")) == "forward"
    assert phase_of(("phase:forward", "phase:clip")) == "clip"
    assert phase_of(("epoch",)) is None


@pytest.mark.parametrize(
    ("demangled", "short"),
    [
        ("void add<float>(float *, void (*)(int))", "add<float>"),
        ("sm80_xmma_gemm", "sm80_xmma_gemm"),
        (
            "void k<at::f(at::Iter &)::[lambda(float) (instance 1)]>(int, T1)",
            "k<at::f(at::Iter &)::[lambda(float) (instance 1)]>",
        ),
        ("odd)", "odd)"),
        ("(anonymous)", "(anonymous)"),
    ],
)
def test_short_names(demangled: str, short: str) -> None:
    assert short_name(demangled) == short
