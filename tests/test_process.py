import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from example_jobs import command
from started import started

from dpprof.drive.launch.job import MEASURE
from dpprof.process import END_WITH, others_processor_s, peak_rss_bytes

pytestmark = pytest.mark.alone


def test_the_age_counts_from_the_start_of_the_process() -> None:
    program = "import time; time.sleep(0.3); from dpprof.process import process_age_s; print(process_age_s())"
    started = time.time()
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True)
    assert 0.3 <= float(done.stdout) <= time.time() - started + 0.1


def test_a_measuring_process_ends_with_a_driver_that_is_killed(tmp_path: Path) -> None:
    """`drive/test_resume.py` goes on with what it leaves; `faults/test_matrix.py` does both in one."""
    hangs = ["--workload", "example_workloads:unlucky", "--trainer", "standard", "--batch-size", "7"]
    arguments = ["profile", *hangs, "--seq-len", "1", "--passes", "clean"]
    driver = started(tmp_path, arguments, lambda: list(tmp_path.glob("runs/*/*/record.json")))
    children = psutil.Process(driver.pid).children(recursive=True)
    assert any(MEASURE in command(child) for child in children)
    driver.kill()
    assert psutil.wait_procs(children, timeout=20)[1] == []
    driver.communicate()


def test_a_process_ends_with_its_driver_though_a_program_is_in_between() -> None:
    sleeper = (
        "import os, time; from dpprof.process import end_with_driver; end_with_driver()\n"
        "time.sleep(1.5); print(os.getpid(), flush=True); time.sleep(120)"  # until it watches
    )
    command = ["sh", "-c", '"$@"; true', "wrapper", sys.executable, "-P", "-c", sleeper]
    program = (
        "import os, subprocess, time\n"
        f"subprocess.Popen({command!r}, env=os.environ | {{{END_WITH!r}: str(os.getpid())}})\n"
        "time.sleep(120)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        measuring = psutil.Process(int(driver.stdout.readline()))
        assert measuring.is_running()
        driver.kill()  # and nobody waits for it
        assert psutil.wait_procs([measuring], timeout=20)[1] == []


def test_the_peak_stays_after_the_memory_is_freed() -> None:
    size = 512 * 2**20
    program = (
        "from dpprof.process import peak_rss_bytes; import psutil\n"
        "before = peak_rss_bytes()\n"
        f"block = b'x' * {size}\n"
        "del block\n"
        "print(before, peak_rss_bytes(), psutil.Process().memory_info().rss)"
    )
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True)
    before, peak, now = map(int, done.stdout.split())
    assert peak - before == pytest.approx(size, rel=0.05)
    assert now < peak - 0.9 * size


def talking(program: str) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-P", "-c", program], stdin=pipe, stdout=pipe, text=True)


def line_of(process: subprocess.Popen[str]) -> str:
    """Its next line, which is waited for."""
    assert process.stdout is not None
    return process.stdout.readline()


def work(seconds: float) -> None:
    """Use the processor for so long."""
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass


def test_the_peak_of_another_process() -> None:
    with talking("block = b'x' * 2**26; print('ready', flush=True); input()") as child:
        line_of(child)
        peak = peak_rss_bytes(child.pid)
        assert peak is not None
        assert psutil.Process(child.pid).memory_info().rss <= peak + 2**20
        assert 2**26 < peak < 2**27
        child.communicate("\n")
    assert peak_rss_bytes(child.pid) is None


def test_another_process_is_among_the_others() -> None:
    program = (
        "from dpprof.process import others_processor_s\n"
        "before = others_processor_s()\n"
        "print('ready', flush=True)\n"
        "input()\n"
        "print(others_processor_s() - before)"
    )
    with talking(program) as other:
        line_of(other)
        work(0.5)
        assert float(other.communicate("\n")[0]) > 0.5 - 0.05, "this process is another one to that one"


def test_others_are_neither_this_process_nor_its_children() -> None:
    """Held against psutil's busy time, which counts all of them, so that it holds on a busy machine too."""
    program = (
        "import time\nwhile time.process_time() < 0.5: pass\nprint(time.process_time(), flush=True)\ninput()"
    )
    own = time.process_time()
    others, busy = _others_s(), _busy_s()
    with talking(program) as child:
        work(0.3)
        used = float(line_of(child))
        others, busy, own = _others_s() - others, _busy_s() - busy, time.process_time() - own
        child.communicate("\n")
    assert own + used > 0.8
    assert others == pytest.approx(busy - own - used, abs=0.1)


def _others_s() -> float:
    found = others_processor_s()
    assert found is not None
    return found


def _busy_s() -> float:
    every = psutil.cpu_times(percpu=True)
    open_to_us = [every[number] for number in os.sched_getaffinity(0)]
    idle = sum(times.idle + times.iowait + times.guest + times.guest_nice for times in open_to_us)
    return sum(map(sum, open_to_us)) - idle
