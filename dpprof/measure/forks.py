"""Forks a process for each estimate, which then starts with torch and all else already imported.

    python -m dpprof.measure --fork        its standard input is a Unix socket of packets

A request is a JSON packet with the descriptor of a log file: `{"folder": ..., "workload": ..., "mark": ...}`,
the last one that of the job's processes. Replies are `{"pid": ...}` for each request, in order, and
`{"pid": ..., "code": ...}` when that process has ended. For estimates only: steps that are measured take 5 to
10 % longer in a fork. When the socket closes, this process and all its forks end.
"""

import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from dpprof.measure.entry import measure, prepare
from dpprof.measure.spare import import_all
from dpprof.process import END_WITH, JOB
from dpprof.record.folder import RunFolder
from dpprof.vocabulary.registry import load
from dpprof.vocabulary.workloads import WORKLOADS, listed

OPTION = "--fork"
_LONGEST_REQUEST = 2**16
_LOOK_S = 0.05


def serve() -> int:
    """Fork a process for each request until the socket closes."""
    asked = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    import_all()
    importlib.import_module("torch._subclasses.fake_tensor").FakeTensorMode()  # imports more of the compiler
    running: set[int] = set()
    while True:
        ready, _, _ = select.select([asked], [], [], _LOOK_S)
        with suppress(BrokenPipeError, ConnectionResetError):
            _tell_ended(asked, running)
        if not ready:
            continue
        packet, descriptors, _, _ = socket.recv_fds(asked, _LONGEST_REQUEST, 1)
        if not packet:
            break
        request = json.loads(packet)
        running.add(_fork(asked, request, descriptors[0]))
        os.close(descriptors[0])
    for pid in running:
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return 0


def _tell_ended(asked: socket.socket, running: set[int]) -> None:
    for pid in list(running):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            running.discard(pid)
            asked.send(json.dumps({"pid": pid, "code": os.waitstatus_to_exitcode(status)}).encode())


def _fork(asked: socket.socket, request: dict[str, str], log: int) -> int:
    info = WORKLOADS.get(listed(request["workload"]))
    if info is not None and info.preload:
        with suppress(Exception):  # the estimate itself reports the error
            load(info.preload)()
    gc.freeze()
    driver = os.getpid()
    pid = os.fork()
    if pid == 0:
        asked.close()
        _estimate(request, log, driver)
    with suppress(ProcessLookupError, PermissionError):
        os.setpgid(pid, pid)
    asked.send(json.dumps({"pid": pid}).encode())
    return pid


def _estimate(request: dict[str, str], log: int, driver: int) -> NoReturn:
    code = 1
    try:
        os.setpgid(0, 0)
        for descriptor in (1, 2):
            os.dup2(log, descriptor)
        os.close(log)
        path = Path(request["folder"]).absolute()  # a workload may change the working directory
        sys.argv[1:] = [str(path)]  # as in a process of its own
        os.environ |= {END_WITH: str(driver), JOB: request["mark"]}
        prepare()
        code = measure(RunFolder(path))
    finally:
        os._exit(code)
