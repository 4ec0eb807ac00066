"""A job on the cluster, as the driving process follows it: tried again if a node is lost."""

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import ray

from dpprof.drive.launch.job import Exit, Job
from dpprof.drive.launch.job_log import JobLog
from dpprof.drive.launch.on_ray.folders import pack, unpack
from dpprof.drive.launch.on_ray.nodes import NoNodes, Placement, Placer
from dpprof.drive.launch.on_ray.on_node import Meeting, Work
from dpprof.drive.launch.on_ray.part import Done, Lost, Outcome, RunningPart
from dpprof.drive.launch.orders import CANCEL, FOLLOW
from dpprof.drive.launch.ranks import OTHERS_S
from dpprof.vocabulary.log_lines import SAID


class RayHandle:
    """A job that was submitted. `sources` is what its workload needs, as an object of Ray's."""

    def __init__(
        self, job: Job, on_line: Callable[[str], None], placer: Placer, max_retries: int, sources: object
    ) -> None:
        self._job, self._on_line, self._placer, self._sources = job, on_line, placer, sources
        self._max_tries = max_retries + 1
        self._files = ray.put(pack(job.folder.path))
        self._placement: Placement | None = None
        self._parts: list[RunningPart] = []
        self._lost: list[Lost] = []
        self._num_lost = 0
        self._notes: list[str] = []
        self._is_cancelled = False
        self._end_others_at: float | None = None
        self._exit: Exit | None = None
        # The log as it comes: a node that is lost takes its own along.
        self._log = JobLog(job.log)
        try:
            self._start()
        except BaseException:
            self._log.close()
            raise

    def poll(self) -> Exit | None:
        """How the job ended, if it did."""
        if self._exit is not None:
            return self._exit
        if self._placement is None:
            self._start()
            return self._exit
        for part in self._parts:
            part.poll(self._hear)
        self._begin_others()
        outcomes = [part.outcome for part in self._parts if part.outcome is not None]
        if len(outcomes) == len(self._parts):
            self._settle(outcomes)
        elif any(isinstance(outcome, Lost) or outcome.exit.code for outcome in outcomes):
            self._end_others()
        return self._exit

    def cancel(self) -> None:
        """Ask all parts to end."""
        self._is_cancelled = True
        for part in self._parts:
            part.end(CANCEL)
        if self._placement is None and self._exit is None:
            self._finish(Exit(-signal.SIGTERM, interrupted=True))

    def _start(self) -> None:
        """Place the job, as soon as that can be done, and begin its first part."""
        try:
            self._placement = self._placer.place(self._job)
        except NoNodes as error:
            if not self._lost:
                raise
            self._finish(self._lost_for_good(f"; {error}"))
        if self._placement is not None:
            self._end_others_at = None
            self._parts = [self._begin(self._placement, 0)]

    def _begin(self, placement: Placement, number: int, meeting: Meeting | None = None) -> RunningPart:
        part = placement.parts[number]
        work = Work(self._job, sys.executable, part.first, part.count, meeting)
        return RunningPart(part, work, self._files, self._sources)

    def _begin_others(self) -> None:
        """Begin the other parts, once the first has said where ranks meet."""
        placement, first = self._placement, self._parts[0]
        assert placement is not None
        if len(self._parts) == 1 and first.meeting is not None and not (first.outcome or self._is_cancelled):
            others = range(1, len(placement.parts))
            self._parts += [self._begin(placement, number, first.meeting) for number in others]

    def _end_others(self) -> None:
        """End the parts of one that failed, after the time to find out by themselves."""
        now = time.monotonic()
        self._end_others_at = self._end_others_at or now + OTHERS_S
        if now > self._end_others_at:
            for part in self._parts:
                part.end(FOLLOW)

    def _settle(self, outcomes: Sequence[Outcome]) -> None:
        """All parts have ended, and so has the job, unless it is to be tried again."""
        assert self._placement is not None
        self._placer.give_back(self._placement)
        parts, self._parts, self._placement = self._parts, [], None
        lost = [outcome for outcome in outcomes if isinstance(outcome, Lost)]
        done = [outcome for outcome in outcomes if isinstance(outcome, Done)]
        if not lost:
            self._end(parts, done)
        elif self._is_cancelled:
            self._finish(Exit(-signal.SIGTERM, interrupted=True))
        else:
            self._lose(lost)

    def _lose(self, lost: Sequence[Lost]) -> None:
        """Try again, or give up."""
        for one in lost:
            self._placer.lose(one.node_id)
        if not any(one.was_tried for one in lost):
            return
        self._lost += lost
        self._num_lost += 1
        if self._num_lost == self._max_tries:
            self._finish(self._lost_for_good())
            return
        note = f"{SAID}{self._whys}; try {self._num_lost + 1} of {self._max_tries}"
        self._notes.append(note)
        self._hear([note])

    @property
    def _whys(self) -> str:
        return "; ".join(lost.why for lost in self._lost)

    def _lost_for_good(self, more: str = "") -> Exit:
        times = "once" if self._num_lost == 1 else f"{self._num_lost} times"
        return Exit(-signal.SIGKILL, said=f"tried {times}: {self._whys}{more}")

    def _end(self, parts: Sequence[RunningPart], done: Sequence[Done]) -> None:
        """Keep what came back."""
        for one in done:
            if one.files is not None:
                unpack(one.files, self._job.folder.path)
        if self._notes and done[0].files is not None:
            notes = "".join(f"{note}\n" for note in self._notes)
            self._job.log.write_bytes(notes.encode() + self._job.log.read_bytes())
        exits = [one.exit for one in done]
        ended = exits[0]
        if len(exits) > 1:
            ended = Exit.of_ranks([rank for one in exits for rank in one.ranks])
        self._finish(replace(ended, environment=self._environment(parts)))

    def _environment(self, parts: Sequence[RunningPart]) -> dict[str, str]:
        """What the record is to say of where it ran."""
        began = [part.began for part in parts if part.began is not None]
        found = {"tries": str(self._num_lost + 1)}
        if began:
            found["node"] = ", ".join(one.address for one in began)
        if any(one.niceness for one in began):
            found["niceness"] = ", ".join(str(one.niceness) for one in began)
        return found | ({"lost": self._whys} if self._lost else {})

    def _finish(self, ended: Exit) -> None:
        self._exit = ended
        self._log.close()

    def _hear(self, lines: Sequence[str]) -> None:
        for line in lines:
            os.write(self._log.descriptor, line.encode(errors="replace") + b"\n")
        self._log.new_lines()  # keeps the log from growing without end
        for line in lines:
            self._on_line(line)
