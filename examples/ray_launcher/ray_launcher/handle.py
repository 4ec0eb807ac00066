"""A job on the cluster, as the driving process follows it: retried if a node is lost."""

import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import ray
from ray import exceptions
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from dpprof.drive.launch.job import Exit, Job
from dpprof.drive.launch.job_log import JobLog
from dpprof.drive.launch.ranks import OTHERS_S
from dpprof.errors import message_of
from dpprof.vocabulary.messages import SAID
from ray_launcher import on_node
from ray_launcher.connection import why_lost
from ray_launcher.on_node import CANCEL, FOLLOW, News, Where, Work, pack, unpack
from ray_launcher.placement import Node, NoNodes, Placement, Placer, nodes

# How long a part may take to end when told to.
_ENDING_S = 30.0
# How long to wait for Ray to report a node as lost after a worker has crashed.
_DOUBT_S = 3.0

# Ray's own retries would repeat the first try's lines. Workers are reused, as a job leaves nothing in them
# and starting one takes seconds.
_run_part: Any = ray.remote(num_returns="streaming", max_retries=0, max_calls=0)(on_node.run_part)
_choose_meeting: Any = ray.remote(max_retries=0)(on_node.choose_meeting)
_write_order: Any = ray.remote(num_cpus=0, max_retries=0)(on_node.write_order)


class _Part:
    """Part of a job given to Ray, with `count` ranks, on `node` if one was chosen.

    It `is_lost` with its node, or if its worker was lost before it started; else has an `outcome` in the end.
    """

    def __init__(self, stream: Any, count: int, node: Node | None) -> None:
        self._stream, self._count, self._node = stream, count, node
        self._kill_at = self._dead_at = float("inf")
        self._order, self._seems_lost, self.is_lost = "", False, False
        self.where: Where | None = None
        self.last: News | None = None
        self.outcome: Exit | None = None

    @property
    def place(self) -> Where | Node | None:
        return self.where or self._node

    @property
    def address(self) -> str:
        return self.place.address if self.place is not None else "a node"

    def poll(self, on_lines: Callable[[Sequence[str]], None]) -> None:
        try:
            while self.outcome is None and ray.wait([self._stream], timeout=0)[0]:
                self._take(ray.get(next(self._stream)), on_lines)
        except (exceptions.RayError, StopIteration) as error:
            if self._dead_at == float("inf"):
                self._fail(error)
        if self.outcome is not None:
            return
        now, place = time.monotonic(), self.place
        node_is_gone = place is not None and place.node_id not in {node.node_id for node in nodes()}
        self.is_lost = node_is_gone or (now > self._dead_at and self._seems_lost)
        if self.is_lost:
            return
        if now > self._dead_at:
            self.outcome = self._ended(-signal.SIGKILL, "Ray's worker was killed, and the processes with it")
        elif now > self._kill_at:
            self.outcome = self._ended(-signal.SIGKILL)

    def end(self, order: str) -> None:
        """Ask it to end: CANCEL, or FOLLOW if another part failed. Sent later if it has not started."""
        if not self._order and self.outcome is None:
            self._order = order
            self._kill_at = time.monotonic() + _ENDING_S
            self._send_order()

    def _send_order(self) -> None:
        if self._order and self.where is not None:
            there = NodeAffinitySchedulingStrategy(self.where.node_id, soft=False)
            _write_order.options(scheduling_strategy=there).remote(self._order, self.where.orders)

    def _take(self, news: News, on_lines: Callable[[Sequence[str]], None]) -> None:
        on_lines(news.lines)
        if news.where is not None:
            self.where = news.where
            self._send_order()
        if news.exit is not None:
            self.last = news

    def _fail(self, error: exceptions.RayError | StopIteration) -> None:
        """Interpret the end of the stream, or an error from Ray."""
        if self.last is not None:
            self.outcome = self.last.exit
            return
        cause = error.cause if isinstance(error, exceptions.RayTaskError) else error
        line = next(iter(message_of(cause).strip().splitlines()), "")
        why = f"{type(cause).__name__}: {line.partition('. ')[0].rstrip('.')}"
        if isinstance(cause, exceptions.OutOfMemoryError):
            said = f"Ray's memory monitor ended it: {why}"
            self.outcome = self._ended(-signal.SIGKILL, said, oom_killed=True)
        elif isinstance(
            cause, (exceptions.NodeDiedError, exceptions.ObjectLostError, exceptions.WorkerCrashedError)
        ):
            # A crashed worker may be the first sign of a node that goes down.
            self._seems_lost = self.where is None or not isinstance(cause, exceptions.WorkerCrashedError)
            self._dead_at = time.monotonic() + _DOUBT_S
        else:
            self.outcome = self._ended(1, f"Ray could not run it on {self.address}: {why}")

    def _ended(self, code: int, said: str = "", *, oom_killed: bool = False) -> Exit:
        """Describe the end of processes that did not report it themselves."""
        ended = Exit(
            code, False, self._order == CANCEL, oom_killed, followed=self._order == FOLLOW, said=said
        )
        return replace(ended, ranks=(ended,) * self._count)


class RayHandle:
    """Submitted job. `sources` are its workload's modules, as a Ray object."""

    def __init__(
        self, job: Job, on_line: Callable[[str], None], placer: Placer, max_retries: int, sources: object
    ) -> None:
        self._job, self._on_line, self._placer, self._sources = job, on_line, placer, sources
        self._max_tries = max_retries + 1
        self._files = ray.put(pack(job.folder.path))
        self._placement: Placement | None = None
        self._parts: list[_Part] = []
        self._lost: list[str] = []
        self._notes: list[str] = []
        self._is_cancelled = False
        self._end_others_at: float | None = None
        self._exit: Exit | None = None
        # Written as it arrives: a lost node takes its own log along.
        self._log = JobLog(job.log)
        try:
            self._start()
        except BaseException:
            self._log.close()
            raise

    def poll(self) -> Exit | None:
        """Return how the job ended, if it did."""
        if self._exit is None and (why := why_lost()):
            self._placement = None  # there is nobody to be asked to release it
            self._finish(Exit(-signal.SIGKILL, interrupted=True, said=why))
        elif self._exit is None and self._placement is None:
            self._start()
        elif self._exit is None:
            self._follow()
        return self._exit

    def cancel(self) -> None:
        """Ask all parts to end."""
        self._is_cancelled = True
        if self._exit is not None or why_lost():
            return
        if not any(part.where for part in self._parts):
            self._finish(Exit(-signal.SIGTERM, interrupted=True))
        for part in self._parts:
            part.end(CANCEL)

    def _start(self) -> None:
        try:
            placement = self._placer.place(self._job)
        except NoNodes as error:
            if not self._lost:
                raise
            self._finish(self._lost_for_good(f"; {error}"))
            return
        if placement is None:
            return
        self._placement, self._end_others_at = placement, None
        meeting = None
        if len(placement.counts) > 1:
            meeting = _choose_meeting.options(**placement.options(0)).remote()
        for place, (count, node) in enumerate(zip(placement.counts, placement.nodes, strict=True)):
            work = Work(self._job, sum(placement.counts[:place]), count)
            task = _run_part.options(**placement.options(place))
            stream = task.remote(work, self._files, self._sources, meeting)
            self._parts.append(_Part(stream, count, node))

    def _follow(self) -> None:
        """Poll the parts; end all when one fails, restart all when one is lost."""
        for part in self._parts:
            part.poll(self._write)
        exits = [part.outcome for part in self._parts if part.outcome is not None]
        if lost := [part for part in self._parts if part.is_lost]:
            self._try_again(lost)
        elif len(exits) == len(self._parts):
            self._end(exits)
        elif any(one.code for one in exits):
            # After the time to find out by themselves.
            self._end_others_at = self._end_others_at or time.monotonic() + OTHERS_S
            if time.monotonic() > self._end_others_at:
                for part in self._parts:
                    part.end(FOLLOW)

    def _try_again(self, lost: Sequence[_Part]) -> None:
        for part in lost:
            if part.place is not None:
                self._placer.lose(part.place.node_id)
        if self._is_cancelled:
            self._finish(Exit(-signal.SIGTERM, interrupted=True))
            return
        self._release()
        self._lost.append(f"{lost[0].address} was lost")
        if len(self._lost) == self._max_tries:
            self._finish(self._lost_for_good())
            return
        self._notes.append(f"{SAID}{'; '.join(self._lost)}; try {len(self._lost) + 1} of {self._max_tries}")
        self._write(self._notes[-1:])

    def _lost_for_good(self, more: str = "") -> Exit:
        times = "once" if len(self._lost) == 1 else f"{len(self._lost)} times"
        return Exit(-signal.SIGKILL, said=f"tried {times}: {'; '.join(self._lost)}{more}")

    def _end(self, exits: Sequence[Exit]) -> None:
        for part in self._parts:
            if part.last is not None:
                unpack(part.last.files, self._job.folder.path)
        if self._notes and self._parts[0].last is not None:
            notes = "".join(f"{note}\n" for note in self._notes)
            self._job.log.write_bytes(notes.encode() + self._job.log.read_bytes())
        ended = exits[0]
        if len(exits) > 1:
            ended = Exit.of_ranks([rank for one in exits for rank in one.ranks])
        found = [part.where for part in self._parts if part.where is not None]
        environment = {"tries": str(len(self._lost) + 1)}
        if found:
            environment["node"] = ", ".join(one.address for one in found)
        if any(one.niceness for one in found):
            environment["niceness"] = ", ".join(str(one.niceness) for one in found)
        if self._lost:
            environment["lost"] = "; ".join(self._lost)
        self._finish(replace(ended, environment=environment))

    def _finish(self, ended: Exit) -> None:
        self._exit = ended
        self._release()
        self._log.close()

    def _release(self) -> None:
        if self._placement is not None:
            self._placer.release(self._placement)
        self._placement, self._parts = None, []

    def _write(self, lines: Sequence[str]) -> None:
        for line in lines:
            os.write(self._log.descriptor, line.encode(errors="replace") + b"\n")
        self._log.new_lines()  # keeps the log from growing without end
        for line in lines:
            self._on_line(line)
