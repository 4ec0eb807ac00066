"""Several tasks at a time, their results in order."""

from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from dpprof.drive.stop import Stop, Stopped

T = TypeVar("T")


def run_in_order(tasks: Sequence[Callable[[], T]], at_a_time: int, stop: Stop) -> Generator[T, None, None]:
    """What each task gives, in order. One at a time runs in this thread, several in threads of their own.

    Once `stop` is requested no more tasks begin. Those that run are expected to end, with what they have or
    by raising Stopped. A fault in one stops the others and is raised.
    """

    def run(task: Callable[[], T]) -> list[T]:
        try:
            return [] if stop.requested else [task()]
        except Stopped:
            return []

    if at_a_time == 1:
        for task in tasks:
            yield from run(task)
        return
    with ThreadPoolExecutor(at_a_time) as pool:
        running = [pool.submit(run, task) for task in tasks]
        try:
            for future in running:
                yield from future.result()
        except BaseException:  # a fault, or nobody takes more results: the others must not go on
            stop.request()
            raise
