"""What `verify` found of some trainers, as a table of checks by trainers, and a sentence for each finding."""

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape

from dpprof.cli.fitted_tables import right, table
from dpprof.figures.gradient_verdict import FAIL
from dpprof.figures.results import Result
from dpprof.figures.verify_verdict import WARNING
from dpprof.record.verify import VerifyCheck
from dpprof.vocabulary.trainers import short_name
from dpprof.vocabulary.verify_checks import CHECKS

_COLORS = {FAIL: "red", WARNING: "yellow"}


def print_verified(console: Console, results: Sequence[Result]) -> None:
    """The checks of all trainers, then what failed or warns, and what could not be checked."""
    verified = [(result, result.record.verify) for result in results if result.record is not None]
    found = {short_name(r.config.trainer): checked for r, checked in verified if checked is not None}
    by_name = {trainer: {c.name: c for c in checked.checks} for trainer, checked in found.items()}
    names = dict.fromkeys([*CHECKS, *(name for checks in by_name.values() for name in checks)])
    rows = [
        (name, *(_cell(checks.get(name)) for checks in by_name.values()))
        for name in names
        if any(name in checks for checks in by_name.values())
    ]
    console.print()
    if rows:
        console.print(table("", [("check", str), *((trainer, right) for trainer in by_name)], rows))
        console.print()
    for outcome, color in _COLORS.items():
        for check, trainers in _alike(by_name, outcome):
            told = (
                f"[{color}]{outcome}[/] ({escape(', '.join(trainers))}): {check.name}: {escape(check.said)}"
            )
            console.print(told)
    for trainer, checked in found.items():
        if checked.doubt:
            console.print(f"[yellow]cannot tell[/] ({escape(trainer)}): {escape(checked.doubt)}")


def _cell(check: VerifyCheck | None) -> str:
    """The number that a check came to, or its outcome."""
    if check is None:
        return "-"
    if check.outcome in _COLORS:
        return check.outcome.upper() if check.outcome == FAIL else check.outcome
    return check.outcome if check.measured is None else f"{check.measured:.2g}"


def _alike(by_name: dict[str, dict[str, VerifyCheck]], outcome: str) -> list[tuple[VerifyCheck, list[str]]]:
    """The checks with an outcome, each sentence once, with the trainers that it is said of."""
    said: dict[tuple[str, str], tuple[VerifyCheck, list[str]]] = {}
    for trainer, checks in by_name.items():
        for check in checks.values():
            if check.outcome == outcome:
                said.setdefault((check.name, check.said), (check, []))[1].append(trainer)
    return list(said.values())
