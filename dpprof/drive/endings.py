"""Makes sure that a run folder says how its experiment ended, however that was."""

import dataclasses
import errno
import os
import re
import signal
import traceback
from pathlib import Path

from dpprof.config.experiment import ExperimentConfig
from dpprof.drive.launch.job import Exit
from dpprof.errors import DpprofError, describe_error, message_of
from dpprof.record.figures.results import Result, read_result
from dpprof.record.files import read_text, remove
from dpprof.record.folder import RunFolder
from dpprof.record.record import Failure, FailureKind, Memory, PassOutcome, PassStatus
from dpprof.vocabulary.messages import WAITS_IN, has_lost_a_rank, says_oom

_CRASHES = {signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL}
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EROFS}
_END_OF_LOG = 4000
_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<function>\S+)')
# faulthandler's form of a character that is not ASCII.
_ESCAPED = re.compile(r"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U([0-9a-f]{8}))")


def write_how_it_ended(config: ExperimentConfig, folder: RunFolder, ended: Exit, timeout_s: float) -> None:
    """Record an end that the measuring process, or rank 0, could not report itself.

    Figures of a finished clean pass stand: only the pass that ended is marked as failed. Else writes
    `error.json`.
    """
    failure, record = folder.read_error(), folder.read_record()
    if record is not None and ended.environment:
        record.environment |= ended.environment
        folder.write_record(record)
    if ended.interrupted:
        said = ended.said or "stopped by the user"
        folder.write_error(Failure(FailureKind.INTERRUPTED, said, memory=_last_memory(failure, ended)))
        return
    passes = record.passes if record is not None else {}
    left = [
        name for name in config.pass_names if name not in passes or passes[name].status == PassStatus.RUNNING
    ]
    is_done = not left or any(outcome.status == PassStatus.FAILED for outcome in passes.values())
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
        has_failed = outcome.status == PassStatus.FAILED
        was_stopped = (outcome.reason or "").startswith("KeyboardInterrupt")
        is_told = has_failed and why.rank in (None, 0) and not was_stopped
        if outcome.status == PassStatus.RUNNING or (has_failed and not is_told):
            passes[name] = PassOutcome(PassStatus.FAILED, reason, outcome.seconds)
            is_done = True
    if not is_done:  # it ended between two passes
        passes[left[0]] = PassOutcome(PassStatus.FAILED, reason)
    folder.write_record(record)
    folder.error.unlink(missing_ok=True)


def _why_of_ranks(
    config: ExperimentConfig, folder: RunFolder, ended: Exit, timeout_s: float
) -> Failure | None:
    """Find why a job with several ranks ended; None if rank 0's own account is right."""
    rank = culprit(folder, ended, on_cuda=config.device == "cuda")
    if ended.timed_out:
        who = "; which rank kept the others waiting cannot be told: see stacks.txt of each"
        if rank is not None:
            who = f": rank {rank} hung in {line_of_end(folder.rank(rank)) or 'its start'}"
        return Failure(FailureKind.TIMEOUT, f"stopped after timeout_s={timeout_s:g} seconds{who}", rank=rank)
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
    kind = FailureKind.OOM if says_oom(message) else FailureKind.ERROR
    return Failure(kind, f"rank {rank}: {message}", rank=rank)


def _how_it_ended(
    folder: RunFolder, ended: Exit, timeout_s: float, failure: Failure | None, *, is_done: bool
) -> tuple[FailureKind, str] | None:
    """Return kind and message of an end that the measuring process did not explain itself; None if it did."""
    if ended.timed_out:
        return FailureKind.TIMEOUT, f"stopped after timeout_s={timeout_s:g} seconds"
    if ended.said:
        return FailureKind.OOM if ended.oom_killed else FailureKind.KILLED, ended.said
    if failure is not None and failure.kind == FailureKind.INTERRUPTED:
        return FailureKind.KILLED, "ended by SIGTERM from outside"
    if ended.code == -signal.SIGKILL and ended.oom_killed:
        return FailureKind.OOM, "the kernel's out-of-memory killer ended the process (SIGKILL)"
    if ended.code == -signal.SIGKILL:
        return FailureKind.KILLED, "ended by SIGKILL from outside; the kernel reports no lack of memory"
    if ended.code == -signal.SIGABRT and "bad_alloc" in read_text(folder.log)[-_END_OF_LOG:]:
        return FailureKind.OOM, "an allocation outside torch's allocator failed (std::bad_alloc); see run.log"
    if ended.code < 0:
        kind = FailureKind.ERROR if -ended.code in _CRASHES else FailureKind.KILLED
        return kind, f"{ended.how}; see run.log"
    if failure is not None or (ended.code in (0, 1) and is_done):
        return None
    return FailureKind.ERROR, f"{ended.how}; see run.log"


def _last_memory(failure: Failure | None, ended: Exit) -> Memory:
    memory = failure.memory if failure is not None else Memory()
    memory.peak_rss = memory.peak_rss or ended.peak_rss
    return memory


def has_no_room(error: Exception) -> bool:
    """Tell whether an error means that nothing more can be written."""
    return isinstance(error, OSError) and error.errno in _NO_ROOM


def failed_result(config: ExperimentConfig, folder: RunFolder, error: Exception, *, stopped: bool) -> Result:
    """Repair the folder of an experiment that cannot be written or read any more, and return its result.

    Keeps a damaged record under another name. Raises OSError if nothing more can be kept, as on a full disk.
    """
    if has_no_room(error):
        raise error
    failure = Failure(FailureKind.ERROR, describe_error(error), "".join(traceback.format_exception(error)))
    if isinstance(error, DpprofError):
        failure = Failure(FailureKind.ERROR, message_of(error))
    if not folder.path.is_dir():
        failure = Failure(FailureKind.ERROR, "its run folder was deleted while it ran")
        remove(folder.path)
        folder.path.mkdir(parents=True)
    if not os.access(folder.path, os.R_OK | os.W_OK | os.X_OK):
        folder.path.chmod(0o755)
    for path, read in ((folder.record, folder.read_record), (folder.error, folder.read_error)):
        try:
            read()
        except DpprofError:
            _set_aside(path)
    for path in (folder.config, folder.error):
        remove(path)
    folder.write_config(config)
    folder.write_error(Failure(FailureKind.INTERRUPTED, "stopped by the user") if stopped else failure)
    try:
        return read_result(folder)
    except Exception:
        _set_aside(folder.record)
        return read_result(folder)


def checked_result(config: ExperimentConfig, folder: RunFolder) -> Result:
    """Return a folder's result; rewrite its configuration if a workload deleted it."""
    if not folder.config.is_file():
        remove(folder.config)
        folder.write_config(config)
    return read_result(folder)


def _set_aside(path: Path) -> None:
    aside = path.with_name(f"damaged_{path.name}")
    remove(aside)
    path.rename(aside)


def culprit(folder: RunFolder, ended: Exit, *, on_cuda: bool) -> int | None:
    """Return the rank at fault; None if unknown, 0 for a job with at most one rank."""
    if len(ended.ranks) < 2:
        return 0
    ranks = range(len(ended.ranks))
    if ended.timed_out:
        if on_cuda:
            return None
        hanging = [rank for rank in ranks if not _waits(folder.rank(rank))]
        return hanging[0] if len(hanging) == 1 else None
    return min(ranks, key=lambda rank: _innocence(folder.rank(rank), ended.ranks[rank]))


def line_of_end(folder: RunFolder) -> str | None:
    """Return where a rank's main thread was when it was told to end: `model.py, line 30, in forward`."""
    frame = _innermost(folder)
    return None if frame is None else f"{frame['file']}, line {frame['line']}, in {frame['function']}"


def _innermost(folder: RunFolder) -> "re.Match[str] | None":
    main_thread = read_text(folder.stacks).strip().rpartition("\n\n")[2]  # the oldest thread comes last
    return _FRAME.search(_ESCAPED.sub(lambda found: chr(int("".join(found.groups("")), 16)), main_thread))


def _waits(folder: RunFolder) -> bool:
    frame, lines = _innermost(folder), read_text(folder.stacks).splitlines()
    places = tuple(line.removeprefix(WAITS_IN) for line in lines if line.startswith(WAITS_IN))
    return frame is not None and frame["file"].startswith(places)


def _innocence(folder: RunFolder, ended: Exit) -> int:
    said = _said(folder)
    if ended.followed or not (ended.code or said):
        return 5
    if (ended.code == -signal.SIGKILL and ended.oom_killed) or said.startswith("oom: ") or says_oom(said):
        return 0
    if has_lost_a_rank(said):
        return 4
    if ended.code == -signal.SIGABRT:  # as gloo's threads end a process that has lost another one
        return 3
    return 1 if ended.code < 0 else 2


def _said(folder: RunFolder) -> str:
    try:
        failure, record = folder.read_error(), folder.read_record()
    except DpprofError:
        return ""
    if failure is not None:
        return f"{failure.kind}: {failure.message}"
    return " ".join(record.failed_passes.values()) if record is not None else ""
