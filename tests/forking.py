"""Runs Python commands in forks of a process that has imported torch, MLflow and dpprof, for `forked.py`.

Its standard input is a Unix socket. A request is a packet of JSON, `{"arguments": ..., "cwd": ...,
"env": ...}`, with the descriptors of the command's input, output and errors. Replies are `{"pid": ...}` and,
when that process has ended, `{"pid": ..., "code": ...}`. When the socket closes, this process ends.
"""

import atexit
import gc
import io
import json
import os
import runpy
import select
import signal
import socket
import sys
import threading
import warnings
from contextlib import suppress
from typing import Any, cast

_LONGEST_REQUEST = 2**18
_LOOK_S = 0.01


def import_all() -> None:
    """Import what commands and the scripts of tests import."""
    import torch._dynamo  # which the first optimizer imports
    import torch.distributed.tensor
    import torch.profiler  # noqa: F401

    import dpprof.cli.main
    import dpprof.drive.sweep
    import dpprof.own_loop
    import dpprof.pages.run_reports
    import dpprof.tracking.tracker  # noqa: F401


def serve() -> None:
    """Fork a process for each request until the socket closes."""
    asked = socket.socket(fileno=os.dup(0))
    import_all()
    gc.freeze()  # what all forks share need not be looked through
    running: set[int] = set()
    while True:
        ready, _, _ = select.select([asked], [], [], _LOOK_S)
        for pid in list(running):
            if (ended := os.waitpid(pid, os.WNOHANG))[0]:
                running.discard(pid)
                asked.send(json.dumps({"pid": pid, "code": os.waitstatus_to_exitcode(ended[1])}).encode())
        if not ready:
            continue
        packet, descriptors, _, _ = socket.recv_fds(asked, _LONGEST_REQUEST, 3)
        if not packet:
            return
        if (pid := os.fork()) == 0:
            asked.close()
            os._exit(run(json.loads(packet), descriptors))
        for descriptor in descriptors:
            os.close(descriptor)
        running.add(pid)
        asked.send(json.dumps({"pid": pid}).encode())


def run(request: dict[str, Any], descriptors: list[int]) -> int:
    """Run `[-W ACTION] -m MODULE | -c PROGRAM | SCRIPT`, as python does, and return the exit code."""
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
    for descriptor in descriptors:
        os.close(descriptor)
    sys.stdin, sys.stdout, sys.stderr = open(0), _writer(1), _writer(2)  # noqa: SIM115
    vars(sys).update(__stdin__=sys.stdin, __stdout__=sys.stdout, __stderr__=sys.stderr)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    # In place of this file's folder and of dpprof's, from which this process imported it.
    sys.path[:2] = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    code = _ran(request["arguments"])
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as at the end of a process
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(ValueError):  # closed by the script
            stream.flush()
    return code


def _writer(descriptor: int) -> io.TextIOWrapper:
    if descriptor == 1:
        return io.TextIOWrapper(open(1, "wb", closefd=False))
    unbuffered = open(descriptor, "wb", buffering=0, closefd=False)  # noqa: SIM115
    return io.TextIOWrapper(unbuffered, errors="backslashreplace", write_through=True)


def _ran(arguments: list[str]) -> int:
    kind, *rest = arguments
    try:
        if kind == "-W":
            warnings.filterwarnings(cast(Any, rest[0]))
            return _ran(rest[1:])
        if kind == "-m":
            sys.argv = rest
            sys.path.insert(0, os.getcwd())
            runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        elif kind == "-c":
            sys.argv = ["-c", *rest[1:]]
            sys.path.insert(0, "")
            exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})
        else:
            sys.argv = arguments
            sys.path.insert(0, os.path.dirname(os.path.abspath(kind)))
            runpy.run_path(kind, run_name="__main__")
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return (end.code or 0) & 0xFF
        print(end.code, file=sys.stderr)
        return 1
    except KeyboardInterrupt as error:
        _print(error)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException as error:
        _print(error)
        return 1
    return 0


def _print(error: BaseException) -> None:
    """Print an error as python does, without the frames that a process of its own would not have."""
    chain: BaseException | None = error
    while chain is not None:
        frames = chain.__traceback__
        while frames is not None and frames.tb_frame.f_code.co_filename in (__file__, "<frozen runpy>"):
            frames = frames.tb_next
        chain.__traceback__ = frames
        chain = chain.__cause__ or chain.__context__
    sys.excepthook(type(error), error, error.__traceback__)


if __name__ == "__main__":
    serve()
