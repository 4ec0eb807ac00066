"""The stand-in for `ncu` on PATH, for the tests."""

import json
from pathlib import Path
from typing import Any

from programs import make_program

from dpprof.config.counter_metrics import BASIC

HERE = Path(__file__).parent
STEP = (HERE / "drive" / "ncu" / "reports" / "step.csv").read_text()


class StandIn:
    """The stand-in on PATH, and what it was asked."""

    def __init__(self, place: Path) -> None:
        self.place = place
        place.mkdir()
        make_program(place / "ncu", (HERE / "stand_in_ncu.py").read_text())
        self.plan(metrics=[name.partition(".")[0] for name in BASIC], report=STEP)

    def plan(self, **changes: Any) -> None:
        """Change what it does."""
        path = self.place / "ncu.json"
        before = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps(before | changes))

    @property
    def calls(self) -> list[list[str]]:
        """Its command lines so far."""
        return [list(call) for call in json.loads((self.place / "ncu.calls.json").read_text())]
