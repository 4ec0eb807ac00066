"""Makes sure that a run folder says how its experiment ended, whatever became of either."""

import errno
import os
import shutil
import signal
import stat
import traceback
from pathlib import Path

from dpprof.config.experiment import ExperimentConfig
from dpprof.config.flat import ESTIMATE
from dpprof.drive.launch.job import Exit
from dpprof.errors import DpprofError, describe_error, message_of
from dpprof.figures.results import Result, read_result
from dpprof.record.folder import RunFolder
from dpprof.record.record import Failure, Memory, PassOutcome

_CRASHES = {signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL}
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EROFS}
_END_OF_LOG = 4000


def write_how_it_ended(config: ExperimentConfig, folder: RunFolder, ended: Exit, timeout_s: float) -> None:
    """Write into the folder what the measuring process could not say itself.

    If the clean pass had finished, its figures stand: the pass in which the process ended is marked as
    failed. Otherwise the folder gets an `error.json`.
    """
    failure, record = folder.read_error(), folder.read_record()
    if ended.interrupted:
        folder.write_error(Failure("interrupted", "stopped by the user", memory=_last_memory(failure, ended)))
        return
    asked = [ESTIMATE] if config.is_estimate else config.measuring.pass_names
    passes = record.passes if record is not None else {}
    left = [name for name in asked if name not in passes or passes[name].status == "running"]
    is_done = not left or any(outcome.status == "failed" for outcome in passes.values())
    how = _how_it_ended(folder, ended, timeout_s, failure, is_done=is_done)
    if how is None:
        return
    kind, message = how
    if record is None or not record.headline_finished:
        folder.write_error(Failure(kind, message, memory=_last_memory(failure, ended)))
        return
    reason = f"{kind}: {message}"
    for name, outcome in passes.items():
        if outcome.status == "running" or (outcome.reason or "").startswith("KeyboardInterrupt"):
            passes[name] = PassOutcome("failed", reason, outcome.seconds)
            is_done = True
    if not is_done:  # it ended between two passes
        passes[left[0]] = PassOutcome("failed", reason)
    folder.write_record(record)
    folder.error.unlink(missing_ok=True)


def _how_it_ended(
    folder: RunFolder, ended: Exit, timeout_s: float, failure: Failure | None, *, is_done: bool
) -> tuple[str, str] | None:
    """Kind and message of an end that the measuring process did not explain itself; None if it did."""
    if ended.timed_out:
        return "timeout", f"stopped after timeout_s={timeout_s:g} seconds"
    if failure is not None and failure.kind == "interrupted":
        return "killed", "ended by SIGTERM from outside"
    if ended.code == -signal.SIGKILL and ended.oom_killed:
        return "oom", "the kernel's out-of-memory killer ended the process (SIGKILL)"
    if ended.code == -signal.SIGKILL:
        return "killed", "ended by SIGKILL from outside; the kernel reports no lack of memory"
    if ended.code == -signal.SIGABRT and b"bad_alloc" in _end_of_log(folder.log):
        return "oom", "an allocation outside torch's allocator failed (std::bad_alloc); see run.log"
    if ended.code < 0:
        kind = "error" if -ended.code in _CRASHES else "killed"
        return kind, f"the process was ended by {_signal_name(-ended.code)}; see run.log"
    if failure is not None or (ended.code == 0 and is_done):
        return None
    return "error", (
        f"the process ended with exit code {ended.code} before it was done, as os._exit({ended.code}) does; "
        "see run.log"
    )


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # most real-time signals have no name
        return f"signal {number}"


def _end_of_log(log: Path) -> bytes:
    """The end of a log; empty where a workload put something else in its place."""
    try:
        if not stat.S_ISREG(log.lstat().st_mode):
            return b""
        with open(log, "rb") as file:
            file.seek(-min(_END_OF_LOG, log.stat().st_size), os.SEEK_END)
            return file.read(_END_OF_LOG)
    except OSError:
        return b""


def _last_memory(failure: Failure | None, ended: Exit) -> Memory:
    memory = failure.memory if failure is not None else Memory()
    memory.peak_rss = memory.peak_rss or ended.peak_rss
    return memory


def has_no_room(error: Exception) -> bool:
    """Whether an error says that nothing can be written any more, whatever is tried next."""
    return isinstance(error, OSError) and error.errno in _NO_ROOM


def failed_result(config: ExperimentConfig, folder: RunFolder, error: Exception, *, stopped: bool) -> Result:
    """The result of an experiment whose folder cannot be written or read any more, put into order.

    What can be read stays as it is; a record that cannot lies in the folder under another name. Raises the
    error itself, or another OSError, if nothing more can be kept at all, as on a full disk.
    """
    if has_no_room(error):
        raise error
    failure = Failure("error", describe_error(error), "".join(traceback.format_exception(error)))
    if isinstance(error, DpprofError):
        failure = Failure("error", message_of(error))
    if not folder.path.is_dir():
        failure = Failure("error", "its run folder was deleted while it ran")
        folder.path.unlink(missing_ok=True)
        folder.path.mkdir(parents=True)
    if not os.access(folder.path, os.R_OK | os.W_OK | os.X_OK):
        folder.path.chmod(0o755)
    for path, read in ((folder.record, folder.read_record), (folder.error, folder.read_error)):
        try:
            read()
        except DpprofError:
            _set_aside(path)
    for path in (folder.config, folder.error):
        _clear(path)
    folder.write_config(config)
    folder.write_error(Failure("interrupted", "stopped by the user") if stopped else failure)
    try:
        return read_result(folder)
    except Exception:
        _set_aside(folder.record)
        return read_result(folder)


def checked_result(config: ExperimentConfig, folder: RunFolder) -> Result:
    """The result of a folder, which gets its configuration back if a workload deleted it."""
    if not folder.config.is_file():
        _clear(folder.config)
        folder.write_config(config)
    return read_result(folder)


def _set_aside(path: Path) -> None:
    """Keep a damaged file for a look, where nobody takes it for an answer."""
    aside = path.with_name(f"damaged_{path.name}")
    _clear(aside)
    path.rename(aside)


def _clear(path: Path) -> None:
    """Make room for a file where something else may lie."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif path.is_symlink() or (path.exists() and not path.is_file()):
        path.unlink()
