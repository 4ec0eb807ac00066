"""Results of `verify`: the page of one run's trainer, and all trainers compared."""

from collections.abc import Sequence

from dpprof.pages import document as doc
from dpprof.pages.report import page_report
from dpprof.record.figures.results import Result
from dpprof.record.figures.verdicts import FAIL, WARNING, having, judge_checks, least_chance
from dpprof.record.record import VerifyCheck, VerifyResult
from dpprof.vocabulary.trainers import short_name
from dpprof.vocabulary.verify_checks import CHECKS, FALSE_ALARM_RATE

_STYLES: dict[str, doc.Style] = {FAIL: "bad", WARNING: "doubtful"}
_WHAT_IS_MEASURED = (
    "For errors and distances: what was measured, and the largest value allowed. For noise: how likely noise "
    "of the right kind looks as far off, and the chance below which the check fails."
)


def page(result: Result) -> doc.Document | None:
    """Return the checks of a run and their results; None if nothing was verified."""
    found = result.record.verify if result.record is not None else None
    if found is None:
        return None
    trainer = short_name(result.config.trainer)
    verdict = (f"{result.config.trainer} ({trainer}): ", doc.Styled(judge_checks(found).word))
    columns: doc.Columns = [
        ("check", str),
        ("outcome", str),
        ("measured", doc.figure),
        ("allowed", doc.figure),
        ("what must hold", str),
        ("what was found", str),
    ]
    return doc.Document(
        f"{result.folder.name}: verified",
        [
            doc.Sentence((*verdict, f", {len(found.checks)} checks.")),
            *_sentences({trainer: found}),
            doc.Points([(doc.Styled(name), f": {text}") for name, text in _facts(result, found)]),
            doc.Heading("Checks"),
            doc.Sentence(_WHAT_IS_MEASURED, "note"),
            doc.table("", columns, [_row(check) for check in found.checks], name="checks"),
        ],
    )


def _facts(result: Result, found: VerifyResult) -> list[tuple[str, str]]:
    config = result.config
    facts = [
        ("model", f"{config.model_title}, batch {config.batch_size}, sequence {config.seq_len}"),
        ("precision", result.precision),
    ]
    if found.max_grad_norm is not None:
        facts.append(("max_grad_norm", f"{found.max_grad_norm:.4g}, which clips most of the samples"))
    if least_chance(found) is not None:
        said = f"{found.num_noise_tests:,} tests; a right trainer fails one of them with a chance of at most"
        facts.append(("noise", f"{said} {FALSE_ALARM_RATE:.0e} in all"))
    return facts


def _row(check: VerifyCheck) -> tuple[object, ...]:
    measured = check.chance if check.measured is None else check.measured
    allowed = FALSE_ALARM_RATE if check.chance is not None else check.allowed
    style = _STYLES.get(check.outcome)
    outcome = doc.Styled(check.outcome, style) if style else check.outcome
    asks = CHECKS.get(check.name, "")
    return check.name, outcome, _number(measured), _number(allowed), asks, check.said


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def side_by_side(results: Sequence[Result]) -> doc.Document:
    """Return a table of all trainers' checks, then failures, warnings and doubts."""
    verified = [(result, result.record.verify) for result in results if result.record is not None]
    found = {short_name(r.config.trainer): checked for r, checked in verified if checked is not None}
    by_name = {trainer: {c.name: c for c in checked.checks} for trainer, checked in found.items()}
    names = dict.fromkeys([*CHECKS, *(name for checks in by_name.values() for name in checks)])
    rows = [
        (name, *(_cell(checks.get(name)) for checks in by_name.values()))
        for name in names
        if any(name in checks for checks in by_name.values())
    ]
    columns: doc.Columns = [("check", str), *((trainer, doc.figure) for trainer in by_name)]
    return doc.Document("Verified", [*([doc.table("", columns, rows)] if rows else []), *_sentences(found)])


def _cell(check: VerifyCheck | None) -> str:
    if check is None:
        return "-"
    if check.outcome in _STYLES:
        return check.outcome.upper() if check.outcome == FAIL else check.outcome
    return check.outcome if check.measured is None else f"{check.measured:.2g}"


def _sentences(found: dict[str, VerifyResult]) -> list[doc.Part]:
    """List failures, then warnings, each once with its trainers; then doubts."""
    said: dict[tuple[doc.Styled, str], list[str]] = {}
    for outcome, style in _STYLES.items():
        for trainer, checked in found.items():
            for check in having(checked.checks, outcome):
                said.setdefault((doc.Styled(outcome, style), f"{check.name}: {check.said}"), []).append(
                    trainer
                )
    for trainer, checked in found.items():
        if checked.doubt:
            said.setdefault((doc.Styled("cannot tell", "doubtful"), checked.doubt), []).append(trainer)
    return [doc.Sentence((mark, f" ({', '.join(names)}): {text}")) for (mark, text), names in said.items()]


REPORTS = (page_report("verify.html", version=2, page=page),)
