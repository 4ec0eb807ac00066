"""A real MLflow server behind a proxy that breaks the answers that a test names."""

import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from mlflow import MlflowClient

HANG, LOST = "hang", "lost"


@dataclass
class Fault:
    """What happens to `times` requests to a path: a status instead of an answer, `lost` (the request goes
    through, its answer does not), or `hang` (neither).
    """

    path: str
    kind: int | str
    times: int = 1
    # Waits for this many of them to pass first.
    after: int = 0


@dataclass
class FaultyStore:
    """The proxy's address, the client that sees the store as it is, and the faults to come."""

    address: str
    experiment: str
    client: MlflowClient
    faults: list[Fault] = field(default_factory=list)
    # Method and path of every request.
    requests: list[str] = field(default_factory=list)
    hung: threading.Event = field(default_factory=threading.Event)

    def fault_for(self, path: str) -> Fault | None:
        for fault in self.faults:
            if fault.path in path.partition("?")[0] and fault.times:
                if fault.after:
                    fault.after -= 1
                    return None
                fault.times -= 1
                return fault
        return None

    def statuses(self) -> dict[str, str]:
        """The status of every run of the experiment by its name."""
        experiment = self.client.get_experiment_by_name(self.experiment)
        assert experiment is not None
        runs = self.client.search_runs([experiment.experiment_id])
        names = [run.info.run_name for run in runs]
        assert len(set(names)) == len(names), f"a run was made twice: {names}"
        return {run.info.run_name: run.info.status for run in runs}


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def mlflow_server(folder: Path) -> Iterator[str]:
    """A server whose store lies in the folder; its address."""
    address = f"http://127.0.0.1:{(port := free_port())}"
    command = [sys.executable, "-m", "mlflow", "server", "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", f"sqlite:///{folder}/server.db"]
    command += ["--artifacts-destination", str(folder / "artifacts")]
    with open(folder / "server.log", "w") as log:
        server = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, start_new_session=True)
        try:
            _wait_for(address, server)
            yield address
        finally:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def _wait_for(address: str, server: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + 120
    while True:
        try:
            urllib.request.urlopen(f"{address}/health", timeout=5).read()
            return
        except OSError:
            assert server.poll() is None, "the MLflow server ended"
            assert time.monotonic() < deadline, "the MLflow server does not start"
            time.sleep(0.2)


class _Handler(BaseHTTPRequestHandler):
    """Passes requests on to the server, but for those that a fault awaits."""

    store: FaultyStore
    target: str
    released: threading.Event
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def handle_any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.store.requests.append(f"{self.command} {self.path}")
        fault = self.store.fault_for(self.path)
        if fault is not None and fault.kind == HANG:
            self.store.hung.set()
            self.released.wait()
            self.close_connection = True
            return
        if fault is not None and isinstance(fault.kind, int):
            self._answer(fault.kind, {}, b"the store is out of order")
            return
        upstream = http.client.HTTPConnection(self.target, timeout=60)
        headers = {name: value for name, value in self.headers.items() if name.lower() != "host"}
        upstream.request(self.command, self.path, body, headers)
        answer = upstream.getresponse()
        data = answer.read()
        upstream.close()
        if fault is not None:
            self.close_connection = True
            return
        kept = {name: value for name, value in answer.getheaders() if name == "Content-Type"}
        self._answer(answer.status, kept, data)

    def _answer(self, status: int, headers: dict[str, str], data: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any


@contextmanager
def faulty(address: str, experiment: str) -> Iterator[FaultyStore]:
    """A proxy before the server at an address."""
    store = FaultyStore("", experiment, MlflowClient(address))

    released = threading.Event()
    own = {"store": store, "target": address.removeprefix("http://"), "released": released}
    handler = type("Handler", (_Handler,), own)
    proxy = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    proxy.daemon_threads = True
    store.address = f"http://127.0.0.1:{proxy.server_address[1]}"
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    try:
        yield store
    finally:
        released.set()
        proxy.shutdown()
        proxy.server_close()
