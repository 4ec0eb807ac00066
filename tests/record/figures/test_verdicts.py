"""What the gradient check and `verify` found, as verdicts and as metrics."""

import pytest
from example_results import result

from dpprof.record.figures.results import describe
from dpprof.record.figures.verdicts import (
    CANNOT_TELL,
    FAIL,
    GRADIENT_CHECK,
    PASS,
    VERIFY,
    WARNING,
    Verdict,
    judge_checks,
    judge_gradient,
    verdicts,
)
from dpprof.record.record import GradientCheck, PassOutcome, PassStatus, Record, VerifyCheck, VerifyResult

RIGHT = VerifyCheck("gradient_float64", PASS, "off by 1e-16", 1e-16, 1e-9)
ODD = VerifyCheck("sensitivity_nan", WARNING, "a NaN is summed")
WRONG = VerifyCheck("sensitivity_huge", FAIL, "it moves the sum by 9", 9.0, 1.003)
NOISY = VerifyCheck("noise_steps", PASS, "no correlation", chance=0.25)
CLEAN = PassOutcome(PassStatus.FINISHED)


@pytest.mark.parametrize(
    ("check", "word", "reason"),
    [
        (GradientCheck(1e-16, 1e-7), PASS, "clipped gradient off by 1.0e-16 in float64, 1.0e-07 in float32"),
        (
            GradientCheck(2e-9, 1e-7),
            FAIL,
            "clipped gradient off by 2.0e-09 in float64, where 1e-09 is allowed, 1.0e-07 in float32",
        ),
        (GradientCheck(0.0, 4e-3), FAIL, None),
        (GradientCheck(0.0, 0.0, 6e-2), FAIL, None),
        (GradientCheck(0.0, 0.0, relative_error_tf32=5e-3), PASS, None),
        (GradientCheck(0.0, 0.0, relative_error_tf32=7e-3), FAIL, None),
        (GradientCheck(0.0, 0.0, 0.2, rounding={"bfloat16": 0.11}), PASS, None),
        (GradientCheck(0.0, 0.0, 0.2, rounding={"bfloat16": 0.09}), FAIL, None),
        (GradientCheck(1e-7, 1e-7, computed_in="float32", dropout_off=True), PASS, None),
        (GradientCheck(doubt="it draws lots"), CANNOT_TELL, "it draws lots"),
        (GradientCheck(fault="samples mix"), FAIL, "samples mix"),
        (GradientCheck(1e-16, doubt="infinite in float32"), CANNOT_TELL, "infinite in float32"),
        (GradientCheck(1.0, doubt="infinite in float32"), FAIL, None),
        (GradientCheck(float("nan"), 0.0), FAIL, None),
        (GradientCheck(), CANNOT_TELL, "nothing was compared"),
    ],
)
def test_a_check_is_judged(check: GradientCheck, word: str, reason: str | None) -> None:
    found = judge_gradient(check)
    assert found.word == word
    assert reason is None or found.reason == reason


@pytest.mark.parametrize(
    ("passes", "expected"),
    [
        ({"clean": CLEAN}, None),
        (
            {"clean": CLEAN, "gradient_check": PassOutcome(PassStatus.FAILED, "RuntimeError: no\nmore")},
            Verdict(CANNOT_TELL, "the check itself failed: RuntimeError: no"),
        ),
        ({"clean": PassOutcome(PassStatus.FAILED), "gradient_check": PassOutcome(PassStatus.FAILED)}, None),
    ],
)
def test_a_check_that_did_not_end(passes: dict[str, PassOutcome], expected: Verdict | None) -> None:
    told = verdicts(Record({"passes": "clean,trace"}, {}, passes=passes))
    assert told == ({} if expected is None else {GRADIENT_CHECK: expected})


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (VerifyResult([RIGHT]), Verdict(PASS, "1 check")),
        (VerifyResult([RIGHT, ODD]), Verdict(PASS, "2 checks; with a warning from sensitivity_nan")),
        (VerifyResult([RIGHT], dropout_off=True), Verdict(PASS, "1 check; checked with dropout off")),
        (VerifyResult([RIGHT, ODD, WRONG]), Verdict(FAIL, "sensitivity_huge: it moves the sum by 9")),
        (
            VerifyResult([WRONG], doubt="no gradient"),
            Verdict(FAIL, "sensitivity_huge: it moves the sum by 9"),
        ),
        (VerifyResult([RIGHT], doubt="no gradient"), Verdict(CANNOT_TELL, "no gradient")),
        (VerifyResult(), Verdict(CANNOT_TELL, "nothing was checked")),
    ],
)
def test_a_failure_outweighs_all_and_a_warning_fails_nothing(found: VerifyResult, verdict: Verdict) -> None:
    assert judge_checks(found) == verdict


def test_what_did_not_come_to_a_result_cannot_tell() -> None:
    skipped = Record({"passes": "clean,verify"}, {}, passes={"clean": CLEAN})
    assert {name: told.word for name, told in verdicts(skipped).items()} == {VERIFY: CANNOT_TELL}
    assert verdicts(Record({"passes": "clean"}, {}, passes={"clean": CLEAN})) == {}


def test_metrics_count_checks_and_have_what_they_measured() -> None:
    found = VerifyResult([RIGHT, ODD, WRONG, NOISY], noise_deviation=1.001)
    metrics = result("DPSGDTrainer", step_s=0.002, verified=found).metrics
    assert {name: value for name, value in metrics.items() if name.startswith("verify/")} == {
        "verify/checks": 4,
        "verify/failed": 1,
        "verify/warnings": 1,
        "verify/gradient_float64": 1e-16,
        "verify/sensitivity_huge": 9,
        "verify/noise_deviation_ratio": 1.001,
        "verify/noise_least_chance": 0.25,
    }


def test_the_worse_of_both_verdicts_counts() -> None:
    right, wrong = GradientCheck(1e-16, 1e-7), GradientCheck(0.5, 0.5)
    both = result("DPSGDTrainer", step_s=0.002, check=right, verified=VerifyResult([WRONG]))
    assert both.worst_verdict == Verdict(FAIL, "verify: sensitivity_huge: it moves the sum by 9")
    assert "; verify: FAIL (sensitivity_huge: it moves the sum by 9)" in describe(both)
    other = result("DPSGDTrainer", step_s=0.002, check=wrong, verified=VerifyResult([RIGHT]))
    assert other.worst_verdict == other.verdicts["gradient check"]
    assert result("DPSGDTrainer", step_s=0.002).worst_verdict is None
