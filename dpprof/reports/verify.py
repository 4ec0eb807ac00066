"""The page of what `verify` found of a run's trainer: every check, what it asks, and what it found."""

from dataclasses import dataclass
from pathlib import Path

from dpprof.figures.gradient_verdict import FAIL
from dpprof.figures.results import Result
from dpprof.figures.verify_verdict import WARNING, having, judge, least_chance
from dpprof.record.files import write_text
from dpprof.record.verify import VerifyCheck
from dpprof.reports import html
from dpprof.vocabulary.trainers import short_name
from dpprof.vocabulary.verify_checks import CHECKS, FALSE_ALARM_RATE


@dataclass(frozen=True)
class CheckRow:
    """A check as the page shows it."""

    name: str
    asks: str
    outcome: str
    found: str
    measured: str
    allowed: str


@dataclass(frozen=True)
class VerifyPage:
    """What the page shows; `findings` are the checks that failed or warn."""

    title: str
    trainer: str
    verdict: str
    findings: list[CheckRow]
    rows: list[CheckRow]
    facts: dict[str, str]


def compute(result: Result) -> VerifyPage | None:
    """The page of a run; None if nothing was verified."""
    found = result.record.verify if result.record is not None else None
    if found is None:
        return None
    config = result.config
    facts = {
        "model": f"{config.model_name}, batch {config.batch_size}, sequence {config.seq_len}",
        "precision": config.precision,
    }
    if found.max_grad_norm is not None:
        facts["max_grad_norm"] = f"{found.max_grad_norm:.4g}, which clips most of the samples"
    chance = least_chance(found)
    if chance is not None:
        facts["noise"] = (
            f"{found.num_noise_tests:,} tests; a right trainer fails one of them with a chance of at most "
            f"{FALSE_ALARM_RATE:.0e} in all"
        )
    odd = having(found.checks, FAIL) + having(found.checks, WARNING)
    return VerifyPage(
        title=result.folder.name,
        trainer=f"{config.trainer} ({short_name(config.trainer)})",
        verdict=judge(found).word,
        findings=[_row(check) for check in odd],
        rows=[_row(check) for check in found.checks],
        facts=facts | ({"not checked": found.doubt} if found.doubt else {}),
    )


def _row(check: VerifyCheck) -> CheckRow:
    return CheckRow(
        check.name,
        CHECKS.get(check.name, ""),
        check.outcome,
        check.said,
        _number(check.chance if check.measured is None else check.measured),
        _number(FALSE_ALARM_RATE if check.chance is not None else check.allowed),
    )


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def render(page: VerifyPage) -> str:
    """One self-contained HTML page."""
    return html.render("verify.html", page=page)


def write_verify(result: Result) -> list[Path]:
    """Render the page of a run whose trainer was verified. Returns the file."""
    page = compute(result)
    if page is None:
        return []
    write_text(result.folder.verify_page, render(page))
    return [result.folder.verify_page]
