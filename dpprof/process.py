"""What the operating system knows of a process and does to it: age, memory, neighbours, signals."""

import contextlib
import ctypes
import os
import resource
import signal
import sys
import time
from threading import Thread
from typing import NoReturn

import psutil

# The process id of the driving process, in the environment of what it starts.
END_WITH = "DPPROF_END_WITH"
# What marks a job's processes, in the same place.
JOB = "DPPROF_JOB"
_PR_SET_PDEATHSIG = 1
# Processes may start others while they are being killed.
_ROUNDS = 5


def end_with_driver() -> None:
    """See to it that this process ends when the driving process does, however that ends (Linux).

    The kernel does so for a child. With a profiler in between, a thread looks every second whether both live.
    """
    driver = int(os.environ.get(END_WITH, 0))
    if not driver or sys.platform != "linux":
        return
    if os.getppid() == driver:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    else:
        Thread(target=_end_after, args=(driver, os.getppid()), daemon=True).start()


def _end_after(driver: int, parent: int) -> None:
    while psutil.pid_exists(driver) and os.getppid() == parent:
        time.sleep(1)
    os.kill(os.getpid(), signal.SIGKILL)


def kill_job(mark: str) -> None:
    """Kill every process that a job has left, by the mark that they have all inherited.

    A process that made a session of its own is no longer in the job's, nor among its descendants once its
    parent has ended.
    """
    for _ in range(_ROUNDS):
        left = [process for process in psutil.process_iter() if _is_marked(process, mark)]
        if not left:
            return
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()


def _is_marked(process: psutil.Process, mark: str) -> bool:
    try:
        return process.environ().get(JOB) == mark
    except (psutil.Error, OSError):  # ended meanwhile, or another user's
        return False


def process_age_s() -> float:
    """Seconds since this process was started.

    On Linux from the kernel's start time in clock ticks: psutil's `create_time()` adds a boot time that is
    rounded to whole seconds.
    """
    if sys.platform == "linux":
        with open("/proc/self/stat", encoding="utf-8") as stat:
            # Fields after the name, which stands in parentheses and may hold blanks; start time is the 22nd.
            start_ticks = int(stat.read().rpartition(")")[2].split()[19])
        return time.clock_gettime(time.CLOCK_BOOTTIME) - start_ticks / os.sysconf("SC_CLK_TCK")
    return time.time() - psutil.Process().create_time()


def stopping_signals() -> list[signal.Signals]:
    """The signals that ask this process to end: Ctrl-C and Ctrl-\\, `kill`, a terminal that closes.

    SIGHUP and SIGQUIT are not among them if they were ignored from the start: `nohup` does so, and a shell
    for what a script puts in the background.
    """
    unless_ignored = [signal.SIGHUP, signal.SIGQUIT]
    heard = [number for number in unless_ignored if signal.getsignal(number) != signal.SIG_IGN]
    return [signal.SIGINT, signal.SIGTERM, *heard]


def finish_undisturbed() -> None:
    """Ignore these signals from now on: this process was told to stop and is putting things in order.

    They come in pairs: under `mlflow run` Ctrl-C reaches this process first, then MLflow sends SIGTERM.
    """
    for number in stopping_signals():
        signal.signal(number, signal.SIG_IGN)


_left_behind = False


def leave_behind() -> None:
    """Say that a thread of this process hangs, and is not to be waited for at its end."""
    global _left_behind
    _left_behind = True


def end_process(code: int) -> NoReturn:
    """End this process. At once if a thread hangs: Python's own way waits for what the thread started."""
    if _left_behind:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def involuntary_switches() -> int:
    """How often the system took the processor from this process for another one, so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def others_processor_s() -> float | None:
    """Seconds that others have had so far of the processors open to this process.

    Linux: their busy time, what a hypervisor took away included, less what this process and its children
    used. The kernel counts busy time in ticks of up to 10 ms: take differences over many of them. None where
    the system does not tell.
    """
    if sys.platform != "linux":
        return None
    open_to_us = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    ticks = 0
    with open("/proc/stat", encoding="utf-8") as stat:
        for line in stat:
            name, *counts = line.split()
            if name in open_to_us:
                # User (with guests), nice, system, idle, waiting for a disk, interrupts (two), stolen.
                counted = [int(count) for count in counts[:8]]
                ticks += sum(counted) - sum(counted[3:5])
    # A sandbox may show a table of zeros.
    return ticks / os.sysconf("SC_CLK_TCK") - _own_processor_s() if ticks else None


def _own_processor_s() -> float:
    """Processor time of this process, exact, of its living children (a data loader's workers), and of the
    other ranks that run here, which have the same parent.
    """
    usage = resource.getrusage(resource.RUSAGE_SELF)
    used = usage.ru_utime + usage.ru_stime
    own = psutil.Process()
    parent = own.parent() if os.environ.get("LOCAL_WORLD_SIZE", "1") != "1" else None
    for relative in (parent or own).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            used += 0 if relative.pid == own.pid else sum(relative.cpu_times()[:2])
    return used


def peak_rss_bytes(pid: int | None = None) -> int | None:
    """Largest resident set of a process so far, in bytes; this process's by default.

    On Linux the kernel's VmHWM: `getrusage` would also count the parent's memory between fork and exec.
    None for another process where that is not to be had, or once it has ended.
    """
    if sys.platform == "linux":
        try:
            with open(f"/proc/{pid or 'self'}/status", encoding="utf-8") as status:
                for line in status:
                    if line.startswith("VmHWM:"):
                        return int(line.split()[1]) * 1024
        except (FileNotFoundError, ProcessLookupError):
            pass
        return None
    return None if pid else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
