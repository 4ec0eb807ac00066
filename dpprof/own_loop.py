"""The door for a loop that is not dpprof's: `with dpprof.profile(model, optimizer) as prof:`."""

import html
import os
import runpy
import shlex
import sys
import traceback
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.markup import escape

from dpprof.errors import DpprofError, EstimateError, Interrupted, describe_error, message_of
from dpprof.measure.own_loop.lines import line_of
from dpprof.measure.own_loop.loop import LoopEnded, LoopMeasurement
from dpprof.measure.own_loop.target import OnTarget
from dpprof.measure.own_loop.unknown import REMEDY
from dpprof.measure.stacks import folder_of
from dpprof.pages import run_tables, terminal
from dpprof.pages.run_reports import write_run_reports
from dpprof.record.figures.results import Result, describe, read_result

_FAILED = f"with --target, tensors have no data: if {{line}} fails only so, {REMEDY}"
_NESTED = "another dpprof.profile began inside it, and the innermost measures"
# File name of the frames that run a script.
_RUNPY = "<frozen runpy>"
_NOT_OF_SCRIPT = (_RUNPY, folder_of("dpprof"))
# The measurements that are under way, innermost last.
_under_way: list["profile"] = []


class profile(LoopMeasurement):
    """Measures the training loop inside it; call `step()` after each training step.

    The first steps warm up, the next are timed; then the ledger, with the allocator's events, and a trace are
    each kept for some steps. From then on, the loop runs as if this were not there. The folder is that of a
    run: `dpprof show`, `log`, `compare` and `export` take it.
    """

    _why_nothing = (
        "the loop ended in its warm-up; call step() after each training step, and let more than warmup_steps "
        "of them come"
    )
    _active_run: Any = None

    def __enter__(self) -> Self:
        """Begin with the warm-up. Raises ConfigError if it is to be logged and no MLflow run is active."""
        if self._mlflow is not None:
            from dpprof.tracking.tracker import active_run

            self._active_run = active_run(self._mlflow)
        if _under_way:
            _under_way[-1].stop(_NESTED)
        _under_way.append(self)
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """End the measurement, and write the reports of what was measured."""
        _under_way.remove(self)
        ended = isinstance(error, LoopEnded)
        self.stop(error=None if ended else error)
        if self._is_recorded():
            self._write_reports()
            if self._mlflow is not None:
                self.log()
        return ended

    def _is_recorded(self) -> bool:
        return self.folder is not None and self.folder.record.exists()

    def _write_reports(self) -> None:
        try:
            write_run_reports(self.result)
        except Exception as error:  # whatever it is, the loop and its script go on
            self.failure = f"no reports: {describe_error(error)}"
        if self.failure:
            _complain(f"not everything was measured: {self.failure}")

    def log(self) -> str | None:
        """Log the run to MLflow, as asked or as one of its own. Returns its id; says why if it cannot."""
        assert self.folder is not None
        try:
            from dpprof.tracking.tracker import log_loop

            return log_loop(self.result, self._active_run, is_nested=self._mlflow == "nested")
        except Exception as error:  # whatever it is, the loop and its script go on
            why, folder = " ".join(message_of(error).split()), shlex.quote(str(self.folder.path))
            _complain(f"not in MLflow ({why}); to log it: dpprof log {folder}")
            return None

    @property
    def result(self) -> Result:
        """The measurements, read from the folder. Raises DpprofError if the loop ended in its warm-up."""
        if self.folder is None or not self._is_recorded():
            raise DpprofError(f"nothing was measured: {self.failure or self._why_nothing}")
        return read_result(self.folder)

    @property
    def figures(self) -> dict[str, float]:
        """Figures by metric name, as MLflow gets them."""
        return self.result.metrics

    def show(self) -> None:
        """Print what `dpprof show` prints of the run."""
        result = self.result
        console = Console(highlight=False)
        console.print(describe(result))
        for warning in result.record.warnings if result.record is not None else ():
            console.print(f"[yellow]warning:[/yellow] {escape(warning)}")
        page = run_tables.page(result, result.folder.read_timeline(), 10, 10)
        if page is not None:
            terminal.show(console, page)

    def _repr_html_(self) -> str:
        """Show the memory timeline in a notebook."""
        if self.folder is None or not self.folder.timeline_page.exists():
            return "<p>dpprof has measured nothing yet.</p>"
        page = html.escape(self.folder.timeline_page.read_text(encoding="utf-8"))
        return f'<iframe srcdoc="{page}" style="width: 100%; height: 720px; border: 0"></iframe>'


class Watched(profile):
    """Measures a script's training loop; a step ends with that of the script's first optimizer."""

    _why_nothing = (
        "the script took fewer optimizer steps than --warmup-steps and one more. Steps in other processes, "
        "and compiled ones, are not seen. If it trains so, or without torch.optim, use dpprof.profile, and "
        "call step() after each training step"
    )

    def __init__(
        self, script: str, arguments: Sequence[str], *, is_module: bool, target: str, **how: Any
    ) -> None:
        super().__init__(by_optimizer=True, on_target=None if target == "none" else OnTarget(target), **how)
        self._script, self._arguments, self._is_module = script, arguments, is_module

    def run(self) -> int:
        """Run the script as python does, and return its exit code. Its traceback goes to standard error.

        It may return in a fork, too, for which there is nothing to do.
        """
        sys.argv = [self._script, *self._arguments]
        sys.path[0] = os.getcwd() if self._is_module else str(Path(self._script).resolve().parent)
        try:
            with self, self._on_target.running() if self._on_target is not None else nullcontext():
                if self._is_module:
                    runpy.run_module(self._script, run_name="__main__", alter_sys=True)
                else:
                    runpy.run_path(self._script, run_name="__main__")
        except SystemExit as ended:
            if ended.code is None or isinstance(ended.code, int):
                return ended.code or 0
            print(ended.code, file=sys.stderr)
            return 1
        except EstimateError:
            raise
        except KeyboardInterrupt:
            return Interrupted.exit_code
        except Exception as error:
            print(_traceback(error), end="", file=sys.stderr)
            if self._on_target is not None:
                print(f"dpprof: {_FAILED.format(line=line_of(error) or 'a library')}", file=sys.stderr)
            return 1
        return 0


def _traceback(error: Exception) -> str:
    """Return a script's traceback as python prints it, from the script's own frames on."""
    told = traceback.TracebackException.from_exception(error)
    is_of_run = [frame.filename == _RUNPY for frame in told.stack]
    first = is_of_run.index(True) if True in is_of_run else 0
    told.stack = told.stack[first:]  # type: ignore[assignment]
    chain: list[traceback.TracebackException | None] = [told]
    while chain:
        if (one := chain.pop()) is not None:
            own = [frame for frame in one.stack or () if not frame.filename.startswith(_NOT_OF_SCRIPT)]
            # Without frames, as of a syntax error, python has no heading either.
            one.stack = traceback.StackSummary.from_list(own) if own else None  # type: ignore[assignment]
            chain += [one.__cause__, one.__context__, *(one.exceptions or ())]
    return "".join(told.format())


def _complain(text: str) -> None:
    with suppress(ValueError, OSError):  # the loop may have closed the stream
        print(f"dpprof: {text}", file=sys.stderr)


def phase(name: str) -> AbstractContextManager[Any]:
    """Mark a phase of the loop that is measured, if one is: `with dpprof.phase("clip"):`."""
    return _under_way[-1].phase(name) if _under_way else nullcontext()
