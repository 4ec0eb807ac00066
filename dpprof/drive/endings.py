"""Makes sure that a run folder says how its experiment ended, whatever became of either."""

import dataclasses
import errno
import os
import shutil
import signal
import stat
import traceback
from pathlib import Path

from dpprof.config.experiment import ExperimentConfig
from dpprof.drive.culprit import culprit, place_of_end
from dpprof.drive.launch.job import Exit
from dpprof.errors import DpprofError, describe_error, message_of
from dpprof.figures.results import Result, read_result
from dpprof.record.folder import RunFolder
from dpprof.record.record import Failure, Memory, PassOutcome
from dpprof.vocabulary.out_of_memory import says_oom

_CRASHES = {signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL}
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EROFS}
_END_OF_LOG = 4000


def write_how_it_ended(config: ExperimentConfig, folder: RunFolder, ended: Exit, timeout_s: float) -> None:
    """Write into the folder what the measuring process could not say itself, or what only another rank said.

    If the clean pass had finished, its figures stand: the pass in which the process ended is marked as
    failed. Otherwise the folder gets an `error.json`.
    """
    failure, record = folder.read_error(), folder.read_record()
    if record is not None and ended.environment:
        record.environment |= ended.environment
        folder.write_record(record)
    if ended.interrupted:
        folder.write_error(Failure("interrupted", "stopped by the user", memory=_last_memory(failure, ended)))
        return
    passes = record.passes if record is not None else {}
    left = [name for name in config.pass_names if name not in passes or passes[name].status == "running"]
    is_done = not left or any(outcome.status == "failed" for outcome in passes.values())
    why = _why_of_ranks(config, folder, ended, timeout_s) if ended.ranks else None
    if why is None:
        how = _how_it_ended(folder, ended, timeout_s, failure, is_done=is_done)
        if how is None:
            return
        why = Failure(*how, memory=_last_memory(failure, ended))
    if record is None or not record.headline_finished:
        folder.write_error(why)
        return
    reason = f"{why.kind}: {why.message}"
    for name, outcome in passes.items():
        is_told = outcome.status == "failed" and why.rank in (None, 0)
        if outcome.status in ("running", "failed") and not (is_told and not _was_stopped(outcome)):
            passes[name] = PassOutcome("failed", reason, outcome.seconds)
            is_done = True
    if not is_done:  # it ended between two passes
        passes[left[0]] = PassOutcome("failed", reason)
    folder.write_record(record)
    folder.error.unlink(missing_ok=True)


def _was_stopped(outcome: PassOutcome) -> bool:
    return (outcome.reason or "").startswith("KeyboardInterrupt")


def _why_of_ranks(
    config: ExperimentConfig, folder: RunFolder, ended: Exit, timeout_s: float
) -> Failure | None:
    """Why an experiment of several ranks ended, if not in the way that rank 0 says."""
    rank = culprit(folder, ended, on_cuda=config.device == "cuda")
    if ended.timed_out:
        return Failure("timeout", _who_hung(folder, rank, timeout_s), rank=rank)
    assert rank is not None, "only at a time-out none can be told"
    its_folder, its_end = folder.rank(rank), ended.ranks[rank]
    said, record = its_folder.read_error(), its_folder.read_record()
    failed = record.failed_passes if record is not None else {}
    how = _how_it_ended(its_folder, its_end, timeout_s, said, is_done=not its_end.code or bool(failed))
    if how is not None:
        memory = _last_memory(said, its_end)
        return Failure(how[0], f"rank {rank}: {how[1]}", memory=memory, rank=rank)
    if said is not None:
        return dataclasses.replace(said, message=f"rank {rank}: {said.message}", rank=rank)
    if rank == 0 or not failed:
        return None
    message = "; ".join(failed.values())
    return Failure("oom" if says_oom(message) else "error", f"rank {rank}: {message}", rank=rank)


def _who_hung(folder: RunFolder, rank: int | None, timeout_s: float) -> str:
    after = f"after timeout_s={timeout_s:g} seconds"
    if rank is None:
        return f"stopped {after}; which rank kept the others waiting cannot be told: see stacks.txt of each"
    return f"stopped {after}: rank {rank} hung in {place_of_end(folder.rank(rank)) or 'its start'}"


def _how_it_ended(
    folder: RunFolder, ended: Exit, timeout_s: float, failure: Failure | None, *, is_done: bool
) -> tuple[str, str] | None:
    """Kind and message of an end that the measuring process did not explain itself; None if it did."""
    if ended.timed_out:
        return "timeout", f"stopped after timeout_s={timeout_s:g} seconds"
    if ended.said:
        return "oom" if ended.oom_killed else "killed", ended.said
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
    if failure is not None or (ended.code in (0, 1) and is_done):
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
