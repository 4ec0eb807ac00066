"""What the gradient check says of an experiment: pass, fail, or that it cannot tell. Read from the record."""

from dataclasses import dataclass

from dpprof.record.record import GradientCheck, Record

PASS, FAIL, CANNOT_TELL = "pass", "fail", "cannot tell"

# The largest relative error allowed, by what the gradient is computed in.
# float64: every trainer gives the definition's gradient up to rounding, 1e-14 at most in all that was tried.
# float32: norms lose more than gradients do, and clip factors inherit it. On the CPU torch's norm is off by
# 4e-4 over 1e7 numbers (1e-2 over 1e8), and ghost norms are sums that cancel. This is eight times 4e-4; where
# a clip factor is off by more, the noise is too small by as much.
# bf16: rounds to 2**-9 at every operator; 0.005 to 0.009 at 2 to 8 layers. This is about six times that.
TOLERANCES = {"float64": 1e-9, "float32": 3e-3, "bfloat16": 5e-2, "float16": 5e-2}


@dataclass(frozen=True)
class Verdict:
    """`pass`, `fail` or `cannot tell`, and the figures behind it or the reason for it in one sentence."""

    word: str
    reason: str

    def __str__(self) -> str:
        return f"{self.word.upper() if self.word == FAIL else self.word} ({self.reason})"


def gradient_verdict(record: Record) -> Verdict | None:
    """The verdict on a record whose clean figures stand; None where no check was asked for."""
    if not record.headline_finished:
        return None
    if record.gradient_check is not None:
        return judge(record.gradient_check)
    if "gradient_check" in record.failed_passes:
        why = record.failed_passes["gradient_check"].strip().splitlines() or [""]
        return Verdict(CANNOT_TELL, f"the check itself failed: {why[0][:200]}")
    if "gradient_check" in str(record.config.get("passes", "")).split(","):
        return Verdict(CANNOT_TELL, "an earlier pass failed, so that the check did not run")
    return None


def judge(check: GradientCheck) -> Verdict:
    """Hold a check's errors against `TOLERANCES`.

    A model that computes partly in less than float64 is judged everywhere by what it computes in.
    """
    if check.fault is not None:
        return Verdict(FAIL, check.fault)
    errors = {
        "float64": check.relative_error_float64,
        "float32": check.relative_error_float32,
        "bfloat16": check.relative_error_bf16,
    }
    found = {way: error for way, error in errors.items() if error is not None}
    allowed = {way: max(TOLERANCES[way], TOLERANCES[check.computed_in]) for way in found}
    told = ", ".join(
        f"{error:.1e} in {way.replace('bfloat16', 'bf16')}"
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
