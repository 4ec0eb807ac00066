"""Runs dpprof's commands on changed files under an audit hook, and prints what they ran that they must not.

    python audited_commands.py CASES.json        # in the folder of the files

CASES has `commands` and `changes`, each a file, the keys of a text in it, and another text. All commands run
once on the files as they are, so that all is imported, then for each change. Prints a list of violations.
"""

import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any

from dpprof.cli.main import main as dpprof

STARTS = ("subprocess.Popen", "os.posix_spawn", "os.fork", "os.forkpty", "os.system", "os.exec", "os.spawn")
# Where code may lie that is not the user's.
INSTALLED = tuple({sys.prefix, sys.base_prefix, str(Path(__file__).parents[1] / "dpprof"), "<"})
NAMED = ("this", "evil", "unittest.__main__", "runs")


class Watch:
    """Notes violations while a change is tried."""

    def __init__(self) -> None:
        self.tried: object = None
        self.found: list[str] = []

    def hook(self, event: str, args: tuple[Any, ...]) -> None:
        """Note code that is not installed, modules that only files name, and new processes."""
        if self.tried is None:
            return
        told = ""
        if event in STARTS:
            told = f"{event} {args[0]!r}"
        elif event == "exec" and not args[0].co_filename.startswith(INSTALLED):
            told = f"exec {args[0].co_filename}"
        elif event == "import" and args[0].startswith(NAMED):
            told = f"import {args[0]}"
        if told:
            self.found.append(f"{self.tried}: {told}")


def run(command: list[str]) -> None:
    """Run a command in this process, whatever it ends with."""
    sys.argv = ["dpprof", *command]
    nowhere = io.StringIO()
    with (
        contextlib.suppress(SystemExit),
        contextlib.redirect_stdout(nowhere),
        contextlib.redirect_stderr(nowhere),
    ):
        dpprof()


def changed(text: str, keys: list[Any], value: str) -> str:
    """Return a JSON text with another value at some keys."""
    data = json.loads(text)
    place = data
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = value
    return json.dumps(data)


def main() -> None:
    """Try everything."""
    cases = json.loads(Path(sys.argv[1]).read_text())
    watch = Watch()
    sys.addaudithook(watch.hook)
    for command in cases["commands"]:
        run(command)
    for file, keys, value in cases["changes"]:
        path = Path(file)
        before = path.read_text()
        path.write_text(changed(before, keys, value))
        for command in cases["commands"]:
            watch.tried = (command[0], file, keys, value)
            run(command)
            watch.tried = None
        path.write_text(before)
    print(json.dumps(watch.found))


if __name__ == "__main__":
    main()
