"""How many experiments run at a time, and what ends them."""

import os
import signal
import time
from collections.abc import Iterator
from threading import get_ident, main_thread

import pytest
from example_config import experiment

from dpprof.drive.campaign import run_in_order
from dpprof.drive.jobs import Stop, Stopped, at_a_time, stop_on_signals
from dpprof.drive.launch.in_process import InProcessLauncher
from dpprof.drive.launch.local import LocalLauncher
from dpprof.errors import ConfigError

SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT]


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Begins with the defaults, whatever the tests were started under, and puts the handlers back."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def wait_for(stop: Stop) -> bool:
    deadline = time.monotonic() + 10
    while not stop.requested and time.monotonic() < deadline:
        time.sleep(0.01)
    return stop.requested


@pytest.mark.parametrize("at_a_time", [1, 2])
def test_results_come_in_order(at_a_time: int) -> None:
    threads = set()

    def task(index: int) -> int:
        threads.add(get_ident())
        time.sleep(0.05 * (3 - index))
        return index

    tasks = [lambda index=index: task(index) for index in range(3)]
    assert list(run_in_order(tasks, at_a_time, Stop())) == [0, 1, 2]
    assert len(threads) == at_a_time
    assert (main_thread().ident in threads) == (at_a_time == 1)


def test_a_fault_reaches_the_caller_and_stops_the_others() -> None:
    stop = Stop()
    stopped: list[bool] = []

    def fault() -> None:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        list(run_in_order([fault, *[lambda: stopped.append(wait_for(stop))] * 2], 2, stop))
    assert stopped in ([True], [True, True])


@pytest.mark.parametrize("at_a_time", [1, 2])
def test_ctrl_c_stops_what_runs_and_starts_nothing_more(at_a_time: int) -> None:
    stop = Stop()

    def interrupt() -> str:
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGINT)
        return "stopped" if wait_for(stop) else "not stopped"

    def give_up() -> str:
        wait_for(stop)
        raise Stopped

    tasks = [interrupt, *[give_up] * (at_a_time - 1), lambda: "never"]
    with stop_on_signals(stop):
        assert list(run_in_order(tasks, at_a_time, stop)) == ["stopped"]
        os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN, "a second Ctrl-C changes nothing"


@pytest.mark.parametrize("number", SIGNALS)
def test_a_closed_terminal_and_quit_stop_like_ctrl_c(number: int) -> None:
    stop = Stop()
    with stop_on_signals(stop):
        os.kill(os.getpid(), number)
        assert wait_for(stop)
    assert all(signal.getsignal(another) == signal.SIG_IGN for another in SIGNALS)


def test_under_nohup_a_closed_terminal_stops_nothing() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    stop = Stop()
    with stop_on_signals(stop):
        os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGQUIT)
        assert wait_for(stop), "the other one is heard"
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN


def test_signals_work_as_before_where_nothing_was_stopped() -> None:
    before = signal.getsignal(signal.SIGINT)
    with stop_on_signals(Stop()):
        assert signal.getsignal(signal.SIGINT) != before
    assert signal.getsignal(signal.SIGINT) == before


MEASURED = experiment(device="cpu", model_size="tiny")
ESTIMATED = experiment(passes="estimate", model_size="tiny")


def test_what_is_measured_is_alone_and_estimates_are_two() -> None:
    assert at_a_time(LocalLauncher(), MEASURED) == 1
    assert at_a_time(LocalLauncher(), ESTIMATED) == 2
    assert at_a_time(LocalLauncher(), ESTIMATED, workers=5) == 5


def test_in_this_process_there_is_one() -> None:
    assert at_a_time(InProcessLauncher(), ESTIMATED) == 1
    assert at_a_time(InProcessLauncher(), ESTIMATED, workers=1) == 1
    with pytest.raises(ConfigError, match=r"^workers: got '2', allowed: 1 with a launcher that runs"):
        at_a_time(InProcessLauncher(), ESTIMATED, workers=2)
