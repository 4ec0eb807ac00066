"""This process's connection to a Ray cluster."""

import logging
import os
import re
import socket
from pathlib import Path
from threading import Event, Thread
from typing import Any

import ray

import dpprof
from dpprof.errors import ConfigError, message_of
from dpprof.process import leave_behind
from dpprof.settings import refuse
from dpprof.vocabulary.cluster_options import AUTO, LOCAL_CLUSTER

# How long a head may take to accept a connection, Ray to connect, and a cluster to start.
_ANSWER_S, _CONNECT_S, _START_S = 5.0, 60.0, 180.0
_ALLOWED = f"{AUTO}, {LOCAL_CLUSTER}, or HOST:PORT of a Ray cluster's head"
_connected_to: str | None = None


def connect(address: str) -> None:
    """Connect to a cluster, which gets a copy of this dpprof, or start one, unless that has been done.

    Raises ConfigError, within a minute or so, if that does not work.
    """
    global _connected_to
    if ray.is_initialized() and address == _connected_to:
        return
    ray.shutdown()
    if address not in (AUTO, LOCAL_CLUSTER):
        _refuse_silent(address)
    _connected_to = None
    _connect(address)
    _connected_to = address


def _refuse_silent(address: str) -> None:
    """Ray itself waits for minutes where nobody listens."""
    found = re.fullmatch(r"(?P<host>[^\s/]+):(?P<port>\d{1,5})", address)
    if found is None or int(found["port"]) >= 2**16:
        raise refuse("ray_address", address, _ALLOWED)
    try:
        socket.create_connection((found["host"].strip("[]"), int(found["port"])), _ANSWER_S).close()
    except OSError as error:
        reason = f"nobody answers there: {error.strerror or error}"
        raise refuse("ray_address", address, f"{_ALLOWED} ({reason})") from None


def _connect(address: str) -> None:
    errors: list[BaseException] = []
    is_over = Event()

    def connect() -> None:
        try:
            _init(address)
        except BaseException as error:
            errors.append(error)
        is_over.set()
        # The processes of a cluster that was started end with the thread that has started them (Linux).
        Event().wait()

    # In a thread, which can be given up, and in which Ray leaves the signal handlers of this process alone.
    Thread(target=connect, daemon=True).start()
    limit_s = _START_S if address == LOCAL_CLUSTER else _CONNECT_S
    if not is_over.wait(limit_s):
        leave_behind()
        raise ConfigError(
            f"ray_address: got {address!r}, which did not answer as a Ray cluster within {limit_s:g} s. Give "
            "the port of the head (as a rule 6379), and start dpprof on a machine that belongs to the cluster"
        )
    if errors:
        raise ConfigError(f"ray_address: got {address!r}, but {_why(errors[0])}") from errors[0]


def _init(address: str) -> None:
    package = Path(dpprof.__file__).parent
    more: dict[str, Any] = {"include_dashboard": False} if address == LOCAL_CLUSTER else {}
    ray.init(
        address,
        # The nodes run this very dpprof, whatever they have installed.
        runtime_env={"py_modules": [str(package)], "excludes": ["__pycache__"]},
        log_to_driver=False,
        logging_level=logging.ERROR,
        **more,
    )


def _why(error: BaseException) -> str:
    """What Ray says, in one line, and what it does not say."""
    lines = [line.strip() for line in message_of(error).splitlines() if line.strip()]
    said = " ".join(lines[:4]) or type(error).__name__
    if "Failed to connect to Ray cluster" in said and "RAY_AUTH_MODE" not in os.environ:
        said += "; if it wants a token: RAY_AUTH_MODE=token"
    return said
