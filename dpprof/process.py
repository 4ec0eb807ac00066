"""Age, memory, neighbours and signals of processes, and the processor, from the operating system (Linux)."""

import contextlib
import ctypes
import os
import platform
import resource
import signal
import sys
import time
from pathlib import Path
from threading import Thread
from typing import NoReturn

import psutil

# Environment variable with the driving process's id, for the processes that it starts.
END_WITH = "DPPROF_END_WITH"
# Environment variable that marks a job's processes.
JOB = "DPPROF_JOB"
_PR_SET_PDEATHSIG = 1
# Processes may start others while they are being killed.
_ROUNDS = 5


def end_with_driver() -> None:
    """Make this process end when the driving process does, however that ends (Linux).

    The kernel does so for a child. With a profiler in between, a thread checks both every second.
    """
    driver = int(os.environ.get(END_WITH, 0))
    if not driver:
        return
    if os.getppid() == driver:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    else:
        Thread(target=_end_after, args=(driver, os.getppid()), daemon=True).start()


def _end_after(driver: int, parent: int) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        watched = psutil.Process(driver)
        while watched.status() != psutil.STATUS_ZOMBIE and os.getppid() == parent:
            time.sleep(1)
    os.kill(os.getpid(), signal.SIGKILL)


def kill_job(mark: str) -> None:
    """Kill every process left by a job, by the inherited mark, also those in sessions of their own."""
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


# When this process was given what to do, if it was started in advance (`time.CLOCK_BOOTTIME`).
_given_at: float | None = None


def note_start() -> None:
    """Count this process's time from now on: it was started in advance, and has something to do now."""
    global _given_at
    _given_at = time.clock_gettime(time.CLOCK_BOOTTIME)


def process_age_s() -> float:
    """Seconds since this process started, or was given what to do if it was started in advance.

    From clock ticks, as psutil rounds the boot time.
    """
    if _given_at is not None:
        return time.clock_gettime(time.CLOCK_BOOTTIME) - _given_at
    # Fields after the name, which is in parentheses and may contain spaces; start time is the 22nd.
    start_ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - start_ticks / os.sysconf("SC_CLK_TCK")


def processor() -> dict[str, str]:
    """Return the processor's name and the number of cores that this process may use."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:  # a sandbox hides it
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return {
        "cpu": next(names, platform.processor() or "unknown"),
        "cpu_cores": str(len(os.sched_getaffinity(0))),
    }


def stopping_signals() -> list[signal.Signals]:
    """Return the signals that ask this process to end: Ctrl-C and Ctrl-\\, `kill`, a closing terminal.

    Without SIGHUP and SIGQUIT if ignored from the start, as by `nohup` or in a script's background.
    """
    unless_ignored = [signal.SIGHUP, signal.SIGQUIT]
    heard = [number for number in unless_ignored if signal.getsignal(number) != signal.SIG_IGN]
    return [signal.SIGINT, signal.SIGTERM, *heard]


def finish_undisturbed() -> None:
    """Ignore stopping signals from now on: under `mlflow run` SIGTERM follows Ctrl-C."""
    for number in stopping_signals():
        signal.signal(number, signal.SIG_IGN)


_left_behind = False


def leave_behind() -> None:
    """Record that a thread hangs, so that `end_process` does not wait for it."""
    global _left_behind
    _left_behind = True


def end_process(code: int) -> NoReturn:
    """End this process; at once if a thread hangs, as Python would wait for what that started."""
    if _left_behind:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def involuntary_switches() -> int:
    """Count the involuntary context switches of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def others_processor_s() -> float | None:
    """Seconds so far that others used of the processors open to this process; None if unknown.

    Busy time, also what a hypervisor took, minus that of this process and its children. The kernel counts in
    ticks of up to 10 ms: take differences over many of them.
    """
    open_to_us = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    ticks = 0
    for line in Path("/proc/stat").read_text().splitlines():
        name, *counts = line.split()
        if name in open_to_us:
            # User (with guests), nice, system, idle, waiting for a disk, interrupts (two), stolen.
            counted = [int(count) for count in counts[:8]]
            ticks += sum(counted) - sum(counted[3:5])
    # A sandbox may show a table of zeros.
    return ticks / os.sysconf("SC_CLK_TCK") - _own_processor_s() if ticks else None


def _own_processor_s() -> float:
    """Processor time of this process, its living children, and the other ranks here (same parent)."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    used = usage.ru_utime + usage.ru_stime
    own = psutil.Process()
    parent = own.parent() if os.environ.get("LOCAL_WORLD_SIZE", "1") != "1" else None
    for relative in (parent or own).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            used += 0 if relative.pid == own.pid else sum(relative.cpu_times()[:2])
    return used


def peak_rss_bytes(pid: int | None = None) -> int | None:
    """Largest resident set of a process so far, in bytes, by default of this one; None if unknown or ended.

    VmHWM, as `getrusage` would also count the parent's memory between fork and exec.
    """
    try:
        status = Path(f"/proc/{pid or 'self'}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    found = (int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))
    return next((1024 * kib for kib in found), None)
