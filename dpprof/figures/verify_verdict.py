"""What `verify` says of a trainer: pass, fail, or that it cannot tell. Read from the record."""

from collections.abc import Iterable

from dpprof.figures.gradient_verdict import CANNOT_TELL, FAIL, PASS, Verdict
from dpprof.record.record import Record
from dpprof.record.verify import VerifyCheck, VerifyResult
from dpprof.vocabulary.formats import listed

# Something to know that does not make training less private as long as all numbers are finite.
WARNING = "warning"


def verify_verdict(record: Record) -> Verdict | None:
    """The verdict on a record whose clean figures stand; None where verifying was not asked for."""
    if not record.headline_finished:
        return None
    if record.verify is not None:
        return judge(record.verify)
    if "verify" in record.failed_passes:
        why = record.failed_passes["verify"].strip().splitlines() or [""]
        return Verdict(CANNOT_TELL, f"verifying itself failed: {why[0][:200]}")
    if "verify" in str(record.config.get("passes", "")).split(","):
        return Verdict(CANNOT_TELL, "an earlier pass failed, so that nothing was verified")
    return None


def judge(found: VerifyResult) -> Verdict:
    """A trainer fails if any check fails; a warning is named, and does not fail it."""
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
    """The checks with an outcome."""
    return [check for check in checks if check.outcome == outcome]


def least_chance(found: VerifyResult) -> float | None:
    """The chance of the least likely noise that was seen; None where nothing has noise."""
    return min((check.chance for check in found.checks if check.chance is not None), default=None)
