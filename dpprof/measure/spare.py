"""Gets ready to measure before it is known what: when its experiment comes, all is imported.

    python -m dpprof.measure --wait        its standard input is a Unix socket of packets

It touches no device. One packet comes, a JSON string with the path of a run folder, and the descriptor of a
log for the output; one byte is the answer. From then on it is as a process that was started for this folder.
If the socket closes before, it ends.
"""

import importlib
import json
import os
import socket
import sys
from contextlib import suppress
from pathlib import Path

from dpprof.measure.entry import defer_opacus, measure, prepare
from dpprof.process import end_with_driver, note_start
from dpprof.record.folder import RunFolder

OPTION = "--wait"
_LONGEST_REQUEST = 2**16
_COPIED_AT_ONCE = 2**16


def wait() -> int:
    """Wait for an experiment, run it, and return the exit code."""
    end_with_driver()
    asked = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    with suppress(Exception):  # the experiment itself reports the error
        import_all()
    packet, descriptors, _, _ = socket.recv_fds(asked, _LONGEST_REQUEST, 1)
    if not packet:
        return 0
    note_start()
    (log,) = descriptors
    _write_to(log)
    asked.send(b"1")
    asked.close()
    path = Path(json.loads(packet)).absolute()  # a workload may change the working directory
    sys.argv[1:] = [str(path)]  # as in a process that was started for it
    prepare()
    return measure(RunFolder(path))


def import_all() -> None:
    """Import what experiments import, whatever their trainer."""
    defer_opacus()
    importlib.import_module("dpprof.measure.experiment")
    importlib.import_module("dpprof.measure.trainers.build").import_trainers("", lambda text: None)
    importlib.import_module("torch._dynamo")  # as every optimizer does when it is made


def _write_to(log: int) -> None:
    """Write all output into a log, first that of the imports."""
    earlier = os.dup(1)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    for descriptor in (1, 2):
        os.dup2(log, descriptor)
    os.close(log)
    at = 0
    while data := os.pread(earlier, _COPIED_AT_ONCE, at):
        at += len(data)
        os.write(1, data)
    os.close(earlier)
