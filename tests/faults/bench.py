"""Where rows of the matrix are tried: a server, and what undisturbed sweeps log there."""

import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from after import PROMPT_S, Logged, at_its_end, finished_passes, in_the_end, logged
from disturbances import Row, arm, disturb
from driven import NAME, TRAINERS, Driven, Missed, environment
from faulty_proxy import RESUMED_STEPS
from mlflow_server import MlflowServer

_TRIES = 3
_SWEEP = ("--model-sizes", "tiny", "--batch-sizes", "2", "--seq-lens", "16", "--trainers", "standard,ghost")
_STEPS = ("--warmup-steps", "1", "--measured-steps", "2", "--sweep-name", NAME)
_ALL_PASSES, _FEW_PASSES = "clean,memory,ledger,trace", "clean,memory"
_REQUEST_TIMEOUT_S = "5"


class Bench:
    """A server for one row after the other, and what undisturbed sweeps log there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._undisturbed: dict[str, dict[str, Logged]] = {}
        self.server = MlflowServer(folder / "server")
        self.server.start()

    def problems(self, row: Row) -> list[str]:
        """Do a row, again if the stage was missed. Returns what did not hold."""
        for _ in range(_TRIES):
            try:
                return self._row(row)
            except Missed as missed:
                why = f"stage missed: {missed}"
            finally:
                self.server.heal()
        return [f"not tried: {why}"]

    def _row(self, row: Row) -> list[str]:
        chosen = _ALL_PASSES if row.is_signal else _FEW_PASSES
        undisturbed = self._undisturbed_sweep(chosen)
        folder = Path(tempfile.mkdtemp(prefix="row-", dir=self.folder))
        arguments = _sweep(chosen)
        if row.stage in RESUMED_STEPS:
            self._stop(folder, arguments)
            arguments = (*arguments, "--resume", "true")
        arm(row, self.server)
        run = self._start(folder, *arguments)
        try:
            disturb(row, run, self.server)
            before, told = finished_passes(folder), time.monotonic()
            run.wait()
            seconds = time.monotonic() - told
            found = at_its_end(row, run, self.server, before)
            if row.is_signal and row.whom == "driver" and seconds > PROMPT_S:
                found.append(f"took {seconds:.0f} s to end")
            self.server.heal()
            then = self._start(folder, *self._what_follows(row, folder, chosen))
            then.wait()
            found += in_the_end(then, self.server, undisturbed)
        finally:
            run.end()
        shutil.rmtree(folder)
        return found

    def _stop(self, folder: Path, arguments: Sequence[str]) -> None:
        """Leave a sweep with one cell done, for a fault while it is resumed."""
        row = Row("driver", "SIGINT", "between cells")
        arm(row, self.server)
        run = self._start(folder, *arguments)
        try:
            disturb(row, run, self.server)
            run.wait()
        finally:
            run.end()
            self.server.heal()

    def _what_follows(self, row: Row, folder: Path, chosen: str) -> Sequence[str]:
        """Log what was measured in full; else go on with the sweep, if it had begun."""
        kept = folder / "runs" / NAME
        asked = set(chosen.split(","))
        done = [names for names in finished_passes(folder).values() if names == asked]
        if not row.is_signal and len(done) == len(TRAINERS):
            return ("log", str(kept))
        return (*_sweep(chosen), "--resume", "true") if kept.exists() else _sweep(chosen)

    def _undisturbed_sweep(self, chosen: str) -> dict[str, Logged]:
        if chosen not in self._undisturbed:
            folder = self.folder / f"undisturbed-{chosen.count(',')}"
            run = self._start(folder, *_sweep(chosen))
            assert run.wait() == 0, run.output
            self._undisturbed[chosen] = {
                one.info.run_name: logged(one, self.server) for one in self.server.runs(folder.name)
            }
            assert len(self._undisturbed[chosen]) == len(TRAINERS) + 1
        return self._undisturbed[chosen]

    def _start(self, folder: Path, *arguments: str) -> Driven:
        more = {"MLFLOW_HTTP_REQUEST_TIMEOUT": _REQUEST_TIMEOUT_S}
        return Driven(folder, environment(self.server.proxy.uri, folder.name, **more), *arguments)


def _sweep(chosen: str) -> tuple[str, ...]:
    return ("sweep", *_SWEEP, *_STEPS, "--passes", chosen)
