"""Take the stack of this Python process every 10 ms, and write what each took to a file as it goes.

For `benchmarks/own_time.py`: every Python process imports it at its start whose PYTHONPATH has this folder.
The file lies in the folder $OWN_TIME_SAMPLES; its first line is the process's command, each other one seconds
and a part. While the main thread waits for the one that talks to MLflow, that one's stack counts. Forks are
not sampled: their parent's thread is not in them.
"""

import os
import sys
import threading
import time
from pathlib import Path
from types import FrameType

_EVERY_S = 0.01
_PACKAGES, _OURS = "/site-packages/", "/dpprof/"
_WORDS = {
    "cli": "the command's own code, and printing",
    "json_files.py": "reading and writing run folders",
    "config": "options and configurations",
    "findings": "findings",
    "pages": "pages",
    "record": "reading and writing run folders",
    "vocabulary": "options and configurations",
}
_WAITING = "waiting for measuring processes"
_LOGGING, _OPENING = "logging to MLflow", "opening MLflow's store"

# File and function of each call, the outermost first.
Stack = list[tuple[str, str]]


def sample(path: Path, main: int) -> None:
    """Write samples for ever."""
    last = time.perf_counter()
    with path.open("w", buffering=1) as file:
        file.write(f"{' '.join(sys.orig_argv)}\n")
        while True:
            time.sleep(_EVERY_S)
            stacks = {thread: calls(frame) for thread, frame in sys._current_frames().items()}
            # A long call that lets no other thread run counts for what it returns to.
            now = time.perf_counter()
            if main in stacks:
                file.write(f"{now - last:.6f}\t{part(stacks[main], list(stacks.values()))}\n")
            last = now


def calls(frame: FrameType | None) -> Stack:
    """Calls of a thread."""
    found = []
    while frame is not None:
        found.append((frame.f_code.co_filename, frame.f_code.co_name))
        frame = frame.f_back
    return found[::-1]


def part(stack: Stack, threads: list[Stack]) -> str:
    """What a process is at."""
    place, function = own(stack)
    if place == "drive/logbook.py":
        talking = (one for one in threads if any(f"{_OURS}tracking/" in file for file, _ in one))
        return part_of_mlflow(next(talking, stack))
    imported = import_of(stack)
    if imported:
        return imported
    package = place.partition("/")[0]
    if package == "tracking":
        return part_of_mlflow(stack)
    if package == "drive":
        return _WAITING if function in ("_wait", "run_in_order") else f"{place}, {function}"
    return _WORDS.get(package, place or "Python itself")


def part_of_mlflow(stack: Stack) -> str:
    """What is done with MLflow."""
    is_opening = any(f"{_OURS}tracking/" in file and name == "open" for file, name in stack)
    return import_of(stack) or (_OPENING if is_opening else _LOGGING)


def import_of(stack: Stack) -> str:
    """The package that dpprof imports, with all that this one imports; empty if none is imported."""
    files = [file for file, _ in stack]
    first = next((i for i, file in enumerate(files) if file.startswith("<frozen importlib")), None)
    if first is None:
        return ""
    found = next((file for file in files[first:] if _PACKAGES in file), None)
    if found is None:
        return "imports of dpprof and the standard library"
    names = found.rpartition(_PACKAGES)[2].removesuffix(".py").split("/")
    return f"imports of {'.'.join(name for name in names[:2] if name != '__init__')}"


def own(stack: Stack) -> tuple[str, str]:
    """File and function of the innermost call of dpprof's."""
    for file, function in reversed(stack):
        if _OURS in file and _PACKAGES not in file:
            return file.rpartition(_OURS)[2], function
    return "", ""


def begin(folder: str) -> None:
    """Start the thread that samples."""
    where = Path(folder) / f"{os.getpid()}.txt"
    threading.Thread(target=sample, args=(where, threading.get_ident()), daemon=True).start()


if "OWN_TIME_SAMPLES" in os.environ:
    begin(os.environ["OWN_TIME_SAMPLES"])
