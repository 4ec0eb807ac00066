"""Runs scripts in forks of a process that has imported torch and dpprof, as each would take seconds to.

python tests/fork_scripts.py    # a JSON list on each line of standard input: folder, script, is it watched
"""

import gc
import json
import os
import runpy
import sys
from pathlib import Path

import torch._dynamo  # noqa: F401  # which the first optimizer imports

import dpprof.pages.own_loop  # noqa: F401  # and nearly all of dpprof
from dpprof.cli.main import main as command


def run(folder: str, script: str, is_watched: bool) -> None:
    """Run a script as python does, or `dpprof watch`, with files for its output."""
    os.chdir(folder)
    for number, name in enumerate(("/dev/null", "out", "err")):
        os.dup2(os.open(name, os.O_RDWR | os.O_CREAT), number)
    if is_watched:
        sys.argv = ["dpprof", "watch", "--measured-steps", "3", script]
        command()
    else:
        sys.argv, sys.path[0] = [script], str(Path(script).parent)
        runpy.run_path(script, run_name="__main__")


def main() -> None:
    """Answer each line with the exit code of its script."""
    gc.freeze()  # what all forks share need not be looked through
    while line := sys.stdin.readline():
        sys.stdout.flush()
        if (child := os.fork()) == 0:
            run(*json.loads(line))
            return
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
