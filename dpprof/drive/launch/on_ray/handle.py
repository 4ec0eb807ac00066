"""A job on the cluster, as the driving process follows it: retried if a node is lost."""

import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import ray
from ray import exceptions

from dpprof.drive.launch.job import Exit, Job
from dpprof.drive.launch.job_log import JobLog
from dpprof.drive.launch.on_ray.connection import why_lost
from dpprof.drive.launch.on_ray.on_node import Part, own_words, pack, unpack
from dpprof.drive.launch.on_ray.placement import NoNodes, Placement, Placer, nodes
from dpprof.drive.launch.ranks import OTHERS_S
from dpprof.errors import message_of
from dpprof.vocabulary.messages import SAID

# How long a part may take to end when told to.
_ENDING_S = 30.0
# How long to wait for Ray to report a node as lost after a worker has crashed.
_DOUBT_S = 3.0

_Actor: Any = ray.remote(Part)


class _Part:
    """Part of a job given to Ray. It `is_lost` with its node; else it has an `outcome` in the end."""

    def __init__(self, job: Job, first: int, placement: Placement, place: int) -> None:
        self._count, node = placement.counts[place], placement.nodes[place]
        self.node_id, self.address = (node.node_id, node.address) if node is not None else ("", "a node")
        words = own_words(job.folder.path)
        self.actor = _Actor.options(**placement.options(place)).remote(job, first, self._count, words)
        self._kill_at = self._dead_at = float("inf")
        self.has_started = self._seems_lost = self.is_lost = False
        self._is_cancelled = self._follows = False
        self.niceness = 0
        self.files: bytes | None = None
        self.outcome: Exit | None = None

    def start(self, *given: object) -> None:
        self._answer = self.actor.start.remote(*given)

    def poll(self, on_lines: Callable[[Sequence[str]], None]) -> None:
        if self.outcome is not None:
            return
        if self._dead_at == float("inf") and ray.wait([self._answer], timeout=0)[0]:
            try:
                self._take(ray.get(self._answer), on_lines)
            except exceptions.RayError as error:
                self._fail(error)
        now = time.monotonic()
        node_is_gone = bool(self.node_id) and self.node_id not in {node.node_id for node in nodes()}
        self.is_lost = self.files is None and (node_is_gone or (now > self._dead_at and self._seems_lost))
        if self.outcome is None and now > self._dead_at:
            self.outcome = self._ended(-signal.SIGKILL, "Ray's worker was killed, and the processes with it")
        elif self.outcome is None and now > self._kill_at:
            self.outcome = self._ended(-signal.SIGKILL)

    def cancel(self, *, followed: bool = False) -> None:
        if self.outcome is None and not (self._is_cancelled or self._follows):
            self._is_cancelled, self._follows = not followed, followed
            self._kill_at = time.monotonic() + _ENDING_S
            self.actor.cancel.remote(followed=followed)

    def _take(self, answer: Any, on_lines: Callable[[Sequence[str]], None]) -> None:
        if not self.has_started:
            self.has_started = True
            self.node_id, self.address, self.niceness = answer
        else:
            lines, ended, files = answer
            on_lines(lines)
            if ended is not None:
                self.outcome, self.files = ended, files
                return
        self._answer = self.actor.poll.remote()

    def _fail(self, error: exceptions.RayError) -> None:
        """Interpret an error from Ray."""
        cause = error.cause if isinstance(error, exceptions.RayTaskError) else error
        line = next(iter(message_of(cause).strip().splitlines()), "")
        why = f"{type(cause).__name__}: {line.partition('. ')[0].rstrip('.')}"
        if isinstance(cause, exceptions.OutOfMemoryError):
            said = f"Ray's memory monitor ended it: {why}"
            self.outcome = self._ended(-signal.SIGKILL, said, oom_killed=True)
        elif isinstance(cause, (exceptions.RayActorError, exceptions.ObjectLostError)):
            # It may be the first sign of a node that goes down. Ray knows of a worker's death at once.
            self._seems_lost = not (self.has_started and isinstance(cause, exceptions.ActorDiedError))
            self._dead_at = time.monotonic() + _DOUBT_S
        else:
            self.outcome = self._ended(1, f"Ray could not run it on {self.address}: {why}")

    def _ended(self, code: int, said: str = "", *, oom_killed: bool = False) -> Exit:
        """Describe the end of processes that did not report it themselves."""
        ended = Exit(code, False, self._is_cancelled, oom_killed, followed=self._follows, said=said)
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
        if not any(part.has_started for part in self._parts):
            self._finish(Exit(-signal.SIGTERM, interrupted=True))
        for part in self._parts:
            part.cancel()

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
        for place in range(len(placement.counts)):
            first = sum(placement.counts[:place])
            self._parts.append(_Part(self._job, first, placement, place))
        meeting = self._parts[0].actor.meet.remote() if len(self._parts) > 1 else None
        for part in self._parts:
            part.start(self._files, self._sources, meeting)

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
                    part.cancel(followed=True)

    def _try_again(self, lost: Sequence[_Part]) -> None:
        for part in lost:
            self._placer.lose(part.node_id)
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
            if part.files is not None:
                unpack(part.files, self._job.folder.path)
        if self._notes and self._parts[0].files is not None:
            notes = "".join(f"{note}\n" for note in self._notes)
            self._job.log.write_bytes(notes.encode() + self._job.log.read_bytes())
        ended = exits[0]
        if len(exits) > 1:
            ended = Exit.of_ranks([rank for one in exits for rank in one.ranks])
        found = [part for part in self._parts if part.has_started]
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
