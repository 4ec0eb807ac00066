"""Verdicts of the gradient check and of `verify` on a trainer: pass, fail, or cannot tell."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from dpprof.record.record import GradientCheck, Record, VerifyCheck, VerifyResult
from dpprof.vocabulary.formats import listed

PASS, FAIL, CANNOT_TELL = "pass", "fail", "cannot tell"
# Outcome of a check whose problem does not weaken privacy as long as all numbers are finite.
WARNING = "warning"
GRADIENT_CHECK, VERIFY = "gradient check", "verify"
# The checks in a sentence.
SPOKEN = {GRADIENT_CHECK: "the gradient check", VERIFY: "verify"}

# Largest relative error allowed, by the type that the gradient is computed in.
# float64: all trainers agree with the definition up to rounding, at most 1e-14 in our tests.
# float32: norms lose more precision than gradients, and clip factors inherit it. On the CPU torch's norm is
# off by 4e-4 over 1e7 numbers (1e-2 over 1e8), and ghost norms are sums that cancel. The limit is eight times
# 4e-4; if a clip factor is off by more, the noise is too small by as much.
# tf32: has three more bits than bf16: an eighth of its limit.
# bf16: rounds to 2**-9 at every operator; 0.005 to 0.009 at 2 to 8 layers. The limit is about six times that.
TOLERANCES = {"float64": 1e-9, "float32": 3e-3, "tf32": 6e-3, "bfloat16": 5e-2, "float16": 5e-2}

# A larger error is no fault of the trainer where the naive loop has it too, computed in the same types:
# rounding may turn the sign of an activation. The trainer rounds on its own, so it may be off by twice that.
AS_THE_NAIVE_LOOP = 2.0

T = TypeVar("T")


@dataclass(frozen=True)
class Verdict:
    """`pass`, `fail` or `cannot tell`, and the figures or the reason for it in one sentence."""

    word: str
    reason: str

    def __str__(self) -> str:
        return f"{self.word.upper() if self.word == FAIL else self.word} ({self.reason})"


def verdicts(record: Record) -> dict[str, Verdict]:
    """Return the verdicts of the requested checks, by `SPOKEN`; none if the clean figures do not stand."""
    checked, verified = record.gradient_check, record.verify
    found = {
        GRADIENT_CHECK: _verdict(record, "gradient_check", checked, judge_gradient, "the check itself"),
        VERIFY: _verdict(record, "verify", verified, judge_checks, "verifying itself"),
    }
    return {name: one for name, one in found.items() if one is not None and record.headline_finished}


def _verdict(
    record: Record, name: str, found: T | None, judge: Callable[[T], Verdict], what: str
) -> Verdict | None:
    if found is not None:
        return judge(found)
    if name in record.failed_passes:
        why = record.failed_passes[name].strip().splitlines() or [""]
        return Verdict(CANNOT_TELL, f"{what} failed: {why[0][:200]}")
    if name in str(record.config.get("passes", "")).split(","):
        return Verdict(CANNOT_TELL, "an earlier pass failed")
    return None


def judge_gradient(check: GradientCheck) -> Verdict:
    """Judge the errors by `TOLERANCES`, never stricter than for the type that the model computes in.

    Nor stricter than the naive loop's own error in the same types.
    """
    if check.fault is not None:
        return Verdict(FAIL, check.fault)
    errors = {
        "float64": check.relative_error_float64,
        "float32": check.relative_error_float32,
        "tf32": check.relative_error_tf32,
        "bfloat16": check.relative_error_bf16,
    }
    found = {way: error for way, error in errors.items() if error is not None}
    rounded = {way: AS_THE_NAIVE_LOOP * check.rounding.get(way, 0.0) for way in found}
    allowed = {way: max(TOLERANCES[way], TOLERANCES[check.computed_in], rounded[way]) for way in found}
    told = ", ".join(
        f"{error:.1e} in {way.replace('bfloat16', 'bf16')}"
        + (f" (the naive loop itself by {check.rounding[way]:.1e})" if way in check.rounding else "")
        + (f", where {allowed[way]:.0e} is allowed" if not error <= allowed[way] else "")
        for way, error in found.items()
    )
    remarks = ["checked with dropout off"] if check.dropout_off else []
    if check.computed_in != "float64":
        remarks.append(f"the model computes partly in {check.computed_in}")
    reason = "; ".join([f"clipped gradient off by {told}", *remarks])
    if any(not error <= allowed[way] for way, error in found.items()):
        return Verdict(FAIL, reason)
    if check.doubt is not None or not found:
        return Verdict(CANNOT_TELL, check.doubt or "nothing was compared")
    return Verdict(PASS, reason)


def judge_checks(found: VerifyResult) -> Verdict:
    """Fail the trainer if any check fails; warnings are named but do not fail it."""
    failed, warned = having(found.checks, FAIL), having(found.checks, WARNING)
    if failed:
        return Verdict(FAIL, "; ".join(f"{check.name}: {check.said}" for check in failed))
    if found.doubt is not None or not found.checks:
        return Verdict(CANNOT_TELL, found.doubt or "nothing was checked")
    reasons = [f"{len(found.checks)} check{'s' if len(found.checks) != 1 else ''}"]
    if warned:
        reasons.append(f"with a warning from {listed([check.name for check in warned])}")
    if found.dropout_off:
        reasons.append("checked with dropout off")
    return Verdict(PASS, "; ".join(reasons))


def having(checks: Iterable[VerifyCheck], outcome: str) -> list[VerifyCheck]:
    """Return the checks with an outcome."""
    return [check for check in checks if check.outcome == outcome]


def least_chance(found: VerifyResult) -> float | None:
    """Return the smallest chance (p-value) over the noise tests; None where nothing has noise."""
    return min((check.chance for check in found.checks if check.chance is not None), default=None)
