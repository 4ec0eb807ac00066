"""Programs for the tests to put on PATH."""

import shlex
import sys
from pathlib import Path


def make_program(path: Path, text: str) -> None:
    """Write a Python program that this interpreter runs, wherever it lies: a `#!` line takes no space."""
    starts = f"#!/bin/sh\n'''exec' {shlex.quote(sys.executable)} \"$0\" \"$@\"\n' '''\n"
    path.write_text(starts + text)
    path.chmod(0o755)
