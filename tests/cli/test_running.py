"""The live lines, drawn at one moment after the other."""

import re

import pytest
from example_console import drawn

from dpprof.cli import running
from dpprof.cli.running import Running


class Clock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(running, "time", found)
    return found


def lines(shown: Running) -> list[str]:
    return [re.sub(r"^\S ", "", line) for line in drawn(shown).splitlines()]


def test_what_runs_how_far_it_is_and_what_is_left(clock: Clock) -> None:
    shown = Running("opening the store", num_done=1)
    assert lines(shown) == ["opening the store"]
    shown.total = 4
    shown.start("a", "[2/4] a")
    shown.says("a", "ledger pass")
    clock.now = 90.0
    (first, bar) = lines(shown)
    assert re.fullmatch(r"\[2/4\] a: ledger pass +1 min 30 s", first)
    assert bar.endswith("1 of 4 done after 1 min 30 s"), "nothing finished that could tell the rest"
    assert shown.end("a") == "[2/4] a"
    shown.start("b", "[3/4] b")
    assert lines(shown)[-1].endswith("2 of 4 done after 1 min 30 s, about 3 min left")
    shown.end("b")
    shown.start("c", "[4/4] c")
    shown.end("c")
    assert lines(shown)[0] == "opening the store"
    assert lines(shown)[-1].endswith("4 of 4 done after 1 min 30 s")


def test_without_a_known_number_there_is_no_bar(clock: Clock) -> None:
    shown = Running("opening")
    shown.start("a", "[1/2] a")
    shown.end("a")
    shown.start("b", "a label that is much too long " * 5)
    (line,) = lines(shown)
    assert "…" in line
    assert line.endswith(" 0 s")
