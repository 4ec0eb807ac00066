"""Connection of this process to a Ray cluster."""

import logging
import os
import re
import shlex
import socket
import sys
from concurrent.futures import Future
from contextlib import suppress
from importlib.machinery import PathFinder
from threading import Event, Thread
from typing import Any

import psutil
import ray

import dpprof
import ray_launcher
from dpprof.errors import ConfigError, message_of, refuse
from dpprof.process import leave_behind
from ray_launcher import AUTO, LOCAL_CLUSTER

# Time-outs for the head to accept a connection, for Ray to connect, and for a cluster to start.
_ANSWER_S, _CONNECT_S, _START_S = 5.0, 60.0, 180.0
_ALLOWED = f"{AUTO}, {LOCAL_CLUSTER}, or HOST:PORT of a Ray cluster's head"
_connected_to: str | None = None
# Process of the node, if the cluster was started here.
_node: psutil.Process | None = None


def connect(address: str) -> None:
    """Connect to a cluster and send it this dpprof, or start one; only once.

    Raises ConfigError, within a minute or so, if that fails.
    """
    global _connected_to, _node
    if ray.is_initialized() and address == _connected_to:
        return
    found = PathFinder.find_spec("dpprof", [os.getcwd()])
    if found is not None and found.origin and not os.path.samefile(found.origin, dpprof.__file__):
        # Ray's workers look into the working directory first.
        raise ConfigError(f"launcher: ray would run {found.origin}: start dpprof in another folder")
    ray.shutdown()
    _connected_to = _node = None
    if address not in (AUTO, LOCAL_CLUSTER):
        _refuse_silent(address)
    _connect(address)
    _connected_to = address
    if address == LOCAL_CLUSTER:
        _node = next((one for one in psutil.Process().children() if one.name() == "raylet"), None)


def why_lost() -> str:
    """Say why Ray can no longer be asked, which would end this process without a message; else return ""."""
    with suppress(psutil.NoSuchProcess):
        if _node is None or _node.status() != psutil.STATUS_ZOMBIE:
            return ""
    return "the process of the Ray node that dpprof had started was killed"


def _refuse_silent(address: str) -> None:
    """Raise ConfigError if nobody listens: Ray itself would wait for minutes."""
    found = re.fullmatch(r"(?P<host>[^\s/]+):(?P<port>\d{1,5})", address)
    if found is None or int(found["port"]) >= 2**16:
        raise refuse("ray_address", address, _ALLOWED)
    try:
        socket.create_connection((found["host"].strip("[]"), int(found["port"])), _ANSWER_S).close()
    except OSError as error:
        reason = f"nobody answers there: {error.strerror or error}"
        raise refuse("ray_address", address, f"{_ALLOWED} ({reason})") from None


def _connect(address: str) -> None:
    connected: Future[None] = Future()
    # Nodes run this dpprof and this package, whatever they have installed.
    environment: dict[str, Any] = {
        "py_modules": [*dpprof.__path__, *ray_launcher.__path__],
        "excludes": ["__pycache__"],
    }
    more: dict[str, Any] = {}
    limit_s = _CONNECT_S
    if address == LOCAL_CLUSTER:
        # Ray inserts the interpreter's path into a shell command line without quoting it.
        environment["py_executable"] = shlex.quote(sys.executable)
        more["include_dashboard"], limit_s = False, _START_S

    def connect() -> None:
        try:
            ray.init(
                address, runtime_env=environment, log_to_driver=False, logging_level=logging.ERROR, **more
            )
            connected.set_result(None)
        except BaseException as error:
            connected.set_exception(error)
        # The processes of a new cluster end with the thread that started them.
        Event().wait()

    # In a thread, which can be abandoned, and in which Ray leaves this process's signal handlers alone.
    Thread(target=connect, daemon=True).start()
    try:
        connected.result(limit_s)
    except TimeoutError:
        leave_behind()
        raise ConfigError(
            f"ray_address: got {address!r}, which did not answer as a Ray cluster within {limit_s:g} s. Give "
            "the port of the head (as a rule 6379), and start dpprof on a machine that belongs to the cluster"
        ) from None
    except Exception as error:
        lines = [line.strip() for line in message_of(error).splitlines() if line.strip()]
        why = " ".join(lines[:4]) or type(error).__name__
        raise ConfigError(f"ray_address: got {address!r}, but {why}") from error
