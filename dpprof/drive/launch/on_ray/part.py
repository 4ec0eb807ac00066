"""A part of a job while it runs on a node, as the driving process sees it."""

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import ray
from ray.exceptions import (
    NodeDiedError,
    ObjectLostError,
    OutOfMemoryError,
    RayError,
    RayTaskError,
    TaskCancelledError,
    TaskUnschedulableError,
    WorkerCrashedError,
)
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from dpprof.drive.launch.job import Exit
from dpprof.drive.launch.on_ray.nodes import Part, nodes
from dpprof.drive.launch.on_ray.on_node import Began, Ended, Lines, Meeting, Message, Work, do
from dpprof.drive.launch.orders import CANCEL, FOLLOW, give
from dpprof.errors import message_of
from dpprof.vocabulary.log_lines import SAID

_LOSSES = (NodeDiedError, ObjectLostError, TaskUnschedulableError)
# How long a part may take to end when it is told to, or to be gone when it is killed.
_ENDING_S, _KILLING_S = 30.0, 10.0
# How long it may take until a node is known to be lost whose processes are gone.
_DOUBT_S = 3.0
# How long it waits in Ray's queue before the user is told.
_PATIENCE_S = 20.0
_AT_ONCE = 100

# Ray itself does not try again: a second stream would repeat the first one's lines. And a worker may go on to
# another job, as nothing of one is left in it: starting one takes seconds.
_do: Any = ray.remote(num_returns="streaming", max_retries=0, max_calls=0)(do)
_give: Any = ray.remote(num_cpus=0, max_retries=0)(give)


@dataclass(frozen=True)
class Lost:
    """The part's node was lost, or its worker before it was heard of. `was_tried` is false if the node was
    gone before anything could begin there: another one is chosen then.
    """

    node_id: str
    why: str
    was_tried: bool = True


@dataclass(frozen=True)
class Done:
    """How its processes ended, and the files that came back, if they did."""

    exit: Exit
    files: bytes | None = None


Outcome = Lost | Done


class RunningPart:
    """A part that was given to Ray, with objects of Ray's for the run folder and the workload's modules."""

    def __init__(self, part: Part, work: Work, files: object, sources: object) -> None:
        self._part, self._work = part, work
        self._stream = _do.options(**part.options).remote(work, files, sources)
        self._submitted_at = time.monotonic()
        self._has_said_that_it_waits = False
        self._asked = ""
        self._is_killed = False
        self._kill_at: float | None = None
        self._lost_unless: float | None = None
        self.began: Began | None = None
        self.meeting: Meeting | None = None
        self.outcome: Outcome | None = None

    @property
    def place(self) -> str:
        """Where it runs."""
        if self.began is not None:
            return self.began.address
        return self._part.node.address if self._part.node is not None else "a node"

    def poll(self, hear: Callable[[list[str]], None]) -> None:
        """Take what it says. `hear` gets new lines."""
        for _ in range(_AT_ONCE):
            if self.outcome is not None or self._lost_unless is not None:
                break
            if not ray.wait([self._stream], timeout=0)[0]:
                break
            try:
                message: Message = ray.get(next(self._stream))
            except (RayError, StopIteration) as error:
                self._fail(error)
            else:
                self._take(message, hear)
        self._hurry()
        waits = self.began is None and self.outcome is None
        if waits and not self._has_said_that_it_waits and time.monotonic() > self._submitted_at + _PATIENCE_S:
            self._has_said_that_it_waits = True
            hear([f"{SAID}waits for {self.place}, which others use"])

    def end(self, order: str) -> None:
        """Ask it to end: CANCEL, or FOLLOW if another part has failed."""
        if self.outcome is not None or self._asked:
            return
        self._asked = order
        if self.began is None:
            self._kill()
            return
        self._kill_at = time.monotonic() + _ENDING_S
        there = NodeAffinitySchedulingStrategy(self.began.node_id, soft=False)
        _give.options(scheduling_strategy=there).remote(order, self.began.told)

    def _take(self, message: Message, hear: Callable[[list[str]], None]) -> None:
        if isinstance(message, Began):
            self.began = message
        elif isinstance(message, Meeting):
            self.meeting = message
        elif isinstance(message, Ended):
            self.outcome = Done(message.exit, message.files)
        elif isinstance(message, Lines):
            hear(message.lines)

    def _hurry(self) -> None:
        """See to what takes too long."""
        now = time.monotonic()
        if self.outcome is not None:
            return
        if self._lost_unless is not None:
            assert self.began is not None
            if self.began.node_id not in {node.id for node in nodes()}:
                self.outcome = self._lost("the node is gone")
            elif now > self._lost_unless:
                self.outcome = self._ended(
                    -signal.SIGKILL, "Ray's worker was killed, and the processes with it"
                )
        elif self._kill_at is not None and now > self._kill_at:
            if self._is_killed:
                self.outcome = self._ended(-signal.SIGKILL)
            else:
                self._kill()

    def _kill(self) -> None:
        self._is_killed = True
        self._kill_at = time.monotonic() + _KILLING_S
        ray.cancel(self._stream, force=True)

    def _fail(self, error: RayError | StopIteration) -> None:
        """What an error of Ray's means."""
        cause = error.cause if isinstance(error, RayTaskError) else error
        why = _in_short(cause)
        if self._is_killed or isinstance(cause, TaskCancelledError):
            self.outcome = self._ended(-signal.SIGTERM)
        elif isinstance(error, OutOfMemoryError):
            self.outcome = self._ended(
                -signal.SIGKILL, f"Ray's memory monitor ended it: {why}", oom_killed=True
            )
        elif isinstance(error, _LOSSES) or (isinstance(error, WorkerCrashedError) and self.began is None):
            was_chosen = self._part.node is not None
            self.outcome = self._lost(
                why, was_tried=not (was_chosen and isinstance(error, TaskUnschedulableError))
            )
        elif isinstance(error, WorkerCrashedError):
            # The first that is seen of a node that goes down, or a worker that was killed.
            self._lost_unless = time.monotonic() + _DOUBT_S
        else:
            self.outcome = self._ended(1, f"Ray could not run it on {self.place}: {why}")

    def _lost(self, why: str, *, was_tried: bool = True) -> Lost:
        node_id = self._part.node.id if self._part.node is not None else ""
        if self.began is not None:
            node_id = self.began.node_id
        return Lost(node_id, f"{self.place} was lost ({why})", was_tried)

    def _ended(self, code: int, said: str = "", *, oom_killed: bool = False) -> Done:
        """The end of processes that did not say themselves how they ended."""
        ended = Exit(
            code,
            interrupted=self._asked == CANCEL,
            oom_killed=oom_killed,
            followed=self._asked == FOLLOW,
            said=said,
        )
        return Done(replace(ended, ranks=(ended,) * self._work.count))


def _in_short(error: BaseException) -> str:
    """An error's type, and the first sentence of its message."""
    line = next(iter(message_of(error).strip().splitlines()), "")
    return f"{type(error).__name__}: {line.partition('. ')[0].rstrip('.')}"
