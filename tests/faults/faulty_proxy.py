"""A proxy before an MLflow server: it does to a chosen request what networks and servers do.

It passes everything on until it is armed with a step of the logging and a fault. The first request of that
step then meets the fault, and with a lasting one so does every request after it, until `heal`. A test may
also list `faults` of single requests.
"""

import http.client
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

PARENT_TAG = "mlflow.parentRunId"
LASTING = ("down", "hanging", "507")
# A request that is held is passed on when it is let go; `answered` only tells that it was.
HELD, ANSWERED = "held", "answered"
HANG, LOST = "hanging", "answer lost"
_LONGEST_S = 600


@dataclass(frozen=True)
class Request:
    """What a client asked for."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    def calls(self, name: str) -> bool:
        """Whether it is this call of MLflow's REST API (`runs/create`)."""
        return self.path.partition("?")[0].endswith(f"/mlflow/{name}")

    @property
    def data(self) -> dict[str, Any]:
        """The JSON that it brings."""
        try:
            read = json.loads(self.body or b"{}")
        except ValueError:
            return {}
        return read if isinstance(read, dict) else {}

    @property
    def parent(self) -> str | None:
        """The parent of the run that it creates."""
        return next((tag["value"] for tag in self.data.get("tags", []) if tag["key"] == PARENT_TAG), None)

    @property
    def run_id(self) -> str:
        """The run that it is about."""
        asked = parse_qs(urlsplit(self.path).query).get("run_id")
        return asked[0] if asked else str(self.data.get("run_id", ""))

    @property
    def ends_a_run(self) -> bool:
        """Whether it gives a run its last status."""
        return self.calls("runs/update") and self.data.get("status") in ("FINISHED", "FAILED", "KILLED")


@dataclass
class Fault:
    """What happens to `times` requests to a path, after the first `after` of them: a status, LOST or HANG."""

    path: str
    kind: str
    times: int = 1
    after: int = 0


# The requests that begin each step of the logging, given the runs that are known to be parents.
STEPS: dict[str, Callable[[Request, set[str]], bool]] = {
    "opening the parent": lambda request, parents: request.calls("runs/create") and not request.parent,
    "creating a child": lambda request, parents: request.calls("runs/create") and bool(request.parent),
    "logging metrics": lambda request, parents: (
        request.calls("runs/log-batch") and bool(request.data.get("metrics"))
    ),
    "uploading artifacts": lambda request, parents: (
        request.method == "PUT" and "/mlflow-artifacts/artifacts/" in request.path
    ),
    "finishing a run": lambda request, parents: request.ends_a_run and request.run_id not in parents,
    "finishing the sweep": lambda request, parents: request.ends_a_run and request.run_id in parents,
}
# Those of a sweep that is resumed.
RESUMED_STEPS: dict[str, Callable[[Request, set[str]], bool]] = {
    "reopening the parent": lambda request, parents: (
        request.run_id in parents and (request.calls("runs/get") or request.calls("runs/update"))
    ),
    "looking up a child": lambda request, parents: (
        request.calls("runs/get") and request.run_id not in parents
    ),
}


class FaultyProxy:
    """Listens on a port of its own and passes on to the server at `upstream`."""

    def __init__(self, upstream: int, do: dict[str, Callable[[], None]] | None = None) -> None:
        """`do` has faults that something else must commit, by name; the request then goes on its way."""
        self.upstream, self._do = upstream, do or {}
        self._lock, self._step, self._fault, self._lasts = Lock(), "", "", False
        self._parents: set[str] = set()
        self.faults: list[Fault] = []
        # Paths of all requests.
        self.requests: list[str] = []
        self._server: ThreadingHTTPServer | None = None
        self.port = 0
        self.reached, self._let_go = Event(), Event()
        self._listen()

    @property
    def uri(self) -> str:
        """What clients are told."""
        return f"http://127.0.0.1:{self.port}"

    def arm(self, step: str, fault: str, *, lasts: bool = False) -> None:
        """From the next request of this step on, commit this fault."""
        self.reached, self._let_go = Event(), Event()
        with self._lock:
            self._step, self._fault, self._lasts = step, fault, lasts

    def let_go(self) -> None:
        """Pass on what is held."""
        self._let_go.set()

    def heal(self) -> None:
        """Pass on everything again; what hangs is cut."""
        with self._lock:
            self._step, self._lasts = "", False
        self._let_go.set()
        if self._server is None:
            self._listen()

    def close(self) -> None:
        """Stop listening."""
        self._let_go.set()
        if self._server is not None:
            server, self._server = self._server, None
            server.shutdown()
            server.server_close()

    def meets(self, request: Request) -> str:
        """The fault that this request meets; empty if none."""
        with self._lock:
            path = request.path.partition("?")[0]
            self.requests.append(path)
            for fault_of_path in self.faults:
                if fault_of_path.path in path and fault_of_path.times:
                    return self._taken(fault_of_path)
            goes_on = self._lasts if self.reached.is_set() else self._begins(request)
            if not goes_on:
                return ""
            if self._fault != ANSWERED:
                self.reached.set()
            return self._fault

    def _taken(self, fault: Fault) -> str:
        if fault.after:
            fault.after -= 1
            return ""
        fault.times -= 1
        self.reached.set()
        return fault.kind

    def _begins(self, request: Request) -> bool:
        return bool(self._step) and (STEPS | RESUMED_STEPS)[self._step](request, self._parents)

    def commit(self, fault: str) -> bool:
        """Do what a fault does beside this request. Returns whether the request is passed on."""
        if fault == "down":
            self.close()
        elif fault in (HANG, HELD):
            self._let_go.wait(_LONGEST_S)
        elif fault in self._do:
            self._do[fault]()
        return fault not in ("down", HANG, "killed")

    def pass_on(self, request: Request) -> tuple[int, list[tuple[str, str]], bytes]:
        """The server's answer. Raises OSError or HTTPException if there is none."""
        connection = http.client.HTTPConnection("127.0.0.1", self.upstream, timeout=_LONGEST_S)
        try:
            connection.request(request.method, request.path, request.body, request.headers)
            answer = connection.getresponse()
            body = answer.read()
        finally:
            connection.close()
        if request.calls("runs/create") and not request.parent and answer.status == 200:
            with self._lock:
                self._parents.add(json.loads(body)["run"]["info"]["run_id"])
        return answer.status, answer.getheaders(), body

    def _listen(self) -> None:
        proxy = self

        class Handler(_Handler):
            owner = proxy

        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()


class _Handler(BaseHTTPRequestHandler):
    """One connection, one request."""

    owner: FaultyProxy

    def do(self) -> None:
        self.close_connection = True
        kept = {
            name: value
            for name, value in self.headers.items()
            if name.lower() not in ("host", "connection", "transfer-encoding", "content-length")
        }
        request = Request(self.command, self.path, kept, self._body())
        fault = self.owner.meets(request)
        if fault.isdecimal():
            self._answer(int(fault), [("Content-Type", "text/plain")], f"fault: {fault}".encode())
            return
        if fault and not self.owner.commit(fault):
            return
        try:
            status, headers, body = self.owner.pass_on(request)
        except (OSError, http.client.HTTPException):
            return  # cut, as a server that went away cuts
        if fault != LOST:
            self._answer(status, headers, body)
        if fault == ANSWERED:
            self.owner.reached.set()

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = do

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in ("transfer-encoding", "content-length", "connection"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with suppress(OSError):  # the client is gone
            self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing."""
