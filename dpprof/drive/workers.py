"""Several jobs at a time, each driving a process of its own; Ctrl-C stops them all."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import TypeVar

from dpprof.process import finish_undisturbed

T = TypeVar("T")


def run_jobs(jobs: Sequence[Callable[[Event], T]], workers: int) -> Iterator[T]:
    """What each job gives, in order, with `workers` of them at a time.

    A job is given an event that is set once it should stop: signals reach the main thread alone. After
    Ctrl-C, or when nobody takes more results, jobs that run are told to stop and the others never start.
    """
    stop = Event()
    with ThreadPoolExecutor(workers) as pool:
        started = [pool.submit(job, stop) for job in jobs]
        try:
            for future in started:
                yield future.result()
        except KeyboardInterrupt:
            finish_undisturbed()
            raise
        finally:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
