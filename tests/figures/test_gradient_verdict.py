import pytest

from dpprof.figures.gradient_verdict import CANNOT_TELL, FAIL, PASS, Verdict, gradient_verdict, judge
from dpprof.record.record import GradientCheck, PassOutcome, Record

CLEAN = PassOutcome("finished")


@pytest.mark.parametrize(
    ("check", "word", "reason"),
    [
        (GradientCheck(1e-16, 1e-7), PASS, "clipped gradient off by 1.0e-16 in float64, 1.0e-07 in float32"),
        (
            GradientCheck(2e-9, 1e-7),
            FAIL,
            "clipped gradient off by 2.0e-09 in float64, where 1e-09 is allowed, 1.0e-07 in float32",
        ),
        (
            GradientCheck(0.0, 4e-3),
            FAIL,
            "clipped gradient off by 0.0e+00 in float64, 4.0e-03 in float32, where 3e-03 is allowed",
        ),
        (
            GradientCheck(0.0, 0.0, 6e-2),
            FAIL,
            "clipped gradient off by 0.0e+00 in float64, 0.0e+00 in float32, 6.0e-02 in bf16, "
            "where 5e-02 is allowed",
        ),
        (
            GradientCheck(1e-7, 1e-7, computed_in="float32", dropout_off=True),
            PASS,
            "clipped gradient off by 1.0e-07 in float64, 1.0e-07 in float32; checked with dropout off; "
            "the model computes partly in float32",
        ),
        (GradientCheck(doubt="it draws lots"), CANNOT_TELL, "it draws lots"),
        (GradientCheck(fault="samples mix"), FAIL, "samples mix"),
        (GradientCheck(1e-16, doubt="infinite in float32"), CANNOT_TELL, "infinite in float32"),
        (
            GradientCheck(1.0, doubt="infinite in float32"),
            FAIL,
            "clipped gradient off by 1.0e+00 in float64, where 1e-09 is allowed",
        ),
        (GradientCheck(float("nan"), 0.0), FAIL, None),
        (GradientCheck(), CANNOT_TELL, "nothing was compared"),
    ],
)
def test_a_check_is_judged(check: GradientCheck, word: str, reason: str | None) -> None:
    found = judge(check)
    assert found.word == word
    assert reason is None or found.reason == reason


@pytest.mark.parametrize(
    ("passes", "expected"),
    [
        ({"clean": CLEAN}, None),
        (
            {"clean": CLEAN, "gradient_check": PassOutcome("failed", "RuntimeError: no\nmore")},
            Verdict(CANNOT_TELL, "the check itself failed: RuntimeError: no"),
        ),
        (
            {"clean": CLEAN, "gradient_check": PassOutcome("running")},
            Verdict(CANNOT_TELL, "the check itself failed: it did not finish"),
        ),
        ({"clean": PassOutcome("failed"), "gradient_check": PassOutcome("failed")}, None),
    ],
)
def test_a_check_that_did_not_end(passes: dict[str, PassOutcome], expected: Verdict | None) -> None:
    assert gradient_verdict(Record({"passes": "clean,trace"}, {}, passes=passes)) == expected


def test_a_check_that_an_earlier_pass_prevented() -> None:
    passes = {"clean": CLEAN, "trace": PassOutcome("failed", "no disk")}
    found = gradient_verdict(Record({"passes": "clean,trace,gradient_check"}, {}, passes=passes))
    reason = "an earlier pass failed, so that the check did not run"
    assert found == Verdict(CANNOT_TELL, reason)
