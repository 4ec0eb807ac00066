"""Runs an experiment in this very process, for a debugger.

Not for figures: memory held by the driving process counts too, and there is no time-out.
"""

from collections.abc import Callable
from threading import Event

from dpprof.drive.launch.exit import Exit
from dpprof.measure.entry import measure
from dpprof.record.folder import RunFolder


def launch(folder: RunFolder, timeout_s: float, on_line: Callable[[str], None], stop: Event) -> Exit:
    """Run the experiment here, heeding neither `timeout_s` nor `stop`. Output goes to the terminal."""
    on_line("in this process")
    code = measure(folder)
    failure = folder.read_error()
    interrupted = failure is not None and failure.kind == "interrupted"
    return Exit(code, interrupted=interrupted)
