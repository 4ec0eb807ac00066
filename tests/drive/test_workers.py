import os
import signal
import time
from collections.abc import Iterator
from threading import Event, get_ident

import pytest

from dpprof.drive.workers import run_jobs


@pytest.fixture
def handlers() -> Iterator[None]:
    """Puts the signals' handlers back."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_results_come_in_order_from_several_threads() -> None:
    threads = set()

    def job(stop: Event, index: int) -> int:
        threads.add(get_ident())
        time.sleep(0.05 * (3 - index))
        return index

    jobs = [lambda stop, index=index: job(stop, index) for index in range(3)]
    assert list(run_jobs(jobs, workers=2)) == [0, 1, 2]
    assert len(threads) == 2


def test_a_fault_reaches_the_caller_and_stops_the_others() -> None:
    stopped = []

    def fault(stop: Event) -> None:
        raise ValueError("mine")

    def wait(stop: Event) -> None:
        stopped.append(stop.wait(10))

    with pytest.raises(ValueError, match="mine"):
        list(run_jobs([fault, wait, wait], workers=2))
    assert stopped in ([True], [True, True])


@pytest.mark.usefixtures("handlers")
def test_ctrl_c_stops_what_runs_and_starts_nothing_more() -> None:
    ended: list[bool | None] = []

    def interrupt(stop: Event) -> None:
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGINT)
        ended.append(stop.wait(10))

    def never(stop: Event) -> None:
        ended.append(None)

    with pytest.raises(KeyboardInterrupt):
        list(run_jobs([interrupt, never], workers=1))
    assert ended == [True]
    assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN, "a second Ctrl-C changes nothing"
