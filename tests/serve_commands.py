"""Runs dpprof's commands in one process, as it imports once what each of many processes would.

python tests/serve_commands.py FOLDER    # a JSON list of arguments on each line of standard input
"""

import json
import os
import sys
from pathlib import Path

from conftest import call_dpprof


def main() -> None:
    """Answer each line with a line: the exit code, and what the command wrote."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what is written past Python is no answer
    for line in sys.stdin:
        ended = call_dpprof(Path(sys.argv[1]), *json.loads(line), PYTHONPATH=os.environ["PYTHONPATH"])
        print(json.dumps([ended.returncode, ended.stdout, ended.stderr]), file=answers, flush=True)


if __name__ == "__main__":
    main()
