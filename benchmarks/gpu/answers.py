"""Answers lines of JSON, each in a fork of a process that has imported everything.

A line of standard input has an experiment's settings, and with them `limit_s`, the seconds that it may take.
A line of standard output says that the settings were read; the next one has them again and what was found, or
`kind` (oom, error, timeout or killed), `error` and `traceback`. A fork that is killed is told as such, and
the next line is answered.
"""

import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

Answer = Callable[[dict[str, Any]], dict[str, Any]]
BEGUN = "begun\n"  # no JSON, as answers are
_LONGEST = 4000


def answer_lines(answer: Answer) -> None:
    """Answer every line, one after the other."""
    for line in sys.stdin:
        settings = json.loads(line)
        limit_s = settings.pop("limit_s", 0)
        print(BEGUN, end="", flush=True)
        child = os.fork()
        if not child:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(int(limit_s))
            _tell(settings, _found(answer, settings))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            is_late = number == signal.SIGALRM
            why = f"not over after {limit_s} s" if is_late else f"killed by {signal.Signals(number).name}"
            _tell(settings, {"kind": "timeout" if is_late else "killed", "error": why})
        elif os.WEXITSTATUS(status):
            _tell(settings, {"kind": "error", "error": f"ended with code {os.WEXITSTATUS(status)}"})


def _found(answer: Answer, settings: dict[str, Any]) -> dict[str, Any]:
    began = time.perf_counter()
    try:
        found = answer(settings)
    except Exception as error:
        found = {
            "kind": "oom" if "OutOfMemory" in type(error).__name__ else "error",
            "error": f"{type(error).__name__}: {error}"[:300],
            "traceback": traceback.format_exc()[-_LONGEST:],
        }
    return found | {"seconds": round(time.perf_counter() - began, 2)}


def _tell(settings: dict[str, Any], found: dict[str, Any]) -> None:
    print(json.dumps({"settings": settings, **found}), flush=True)
