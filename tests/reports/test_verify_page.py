"""The page of what `verify` found."""

from example_results import result

from dpprof.figures.gradient_verdict import FAIL, PASS
from dpprof.figures.verify_verdict import WARNING
from dpprof.record.verify import VerifyCheck, VerifyResult
from dpprof.reports.verify import compute, render
from dpprof.vocabulary.verify_checks import CHECKS

FOUND = VerifyResult(
    [
        VerifyCheck("gradient_float64", PASS, "off by 1e-16", 1e-16, 1e-9),
        VerifyCheck("sensitivity_nan", WARNING, "a NaN <is> summed"),
        VerifyCheck("noise_steps", FAIL, "steps 1 and 2 have the same noise", chance=1e-30),
    ],
    max_grad_norm=2.5,
    num_noise_tests=284,
)


def test_failures_come_first_and_every_check_has_a_row() -> None:
    page = compute(result("DPSGDTrainer", step_s=0.002, verified=FOUND))
    assert page is not None
    assert page.verdict == FAIL
    assert [row.name for row in page.findings] == ["noise_steps", "sensitivity_nan"]
    assert [(row.name, row.measured, row.allowed) for row in page.rows] == [
        ("gradient_float64", "1e-16", "1e-09"),
        ("sensitivity_nan", "", ""),
        ("noise_steps", "1e-30", "1e-06"),
    ]
    assert all(row.asks == CHECKS[row.name] for row in page.rows)
    text = render(page)
    assert "a NaN &lt;is&gt; summed" in text
    assert "284 tests" in text


def test_what_was_not_verified_has_no_page() -> None:
    assert compute(result("DPSGDTrainer", step_s=0.002)) is None
    unknown = compute(result("DPSGDTrainer", step_s=0.002, verified=VerifyResult(doubt="no gradient")))
    assert unknown is not None
    assert unknown.facts["not checked"] == "no gradient"
