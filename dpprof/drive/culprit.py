"""Which rank of a job brought the others to an end.

When one dies, the others complain of lost connections, and may well end before it. When one hangs, the others
wait for it, and all are ended alike. Under gloo those that wait stand in the call of a collective. On GPUs
that call returns at once, and they wait wherever they next need a result: there nobody can be named.
"""

import re
import signal

from dpprof.drive.launch.job import Exit
from dpprof.errors import DpprofError
from dpprof.record.folder import RunFolder
from dpprof.vocabulary.lost_ranks import has_lost_a_rank
from dpprof.vocabulary.out_of_memory import says_oom

# The files in which a rank waits for others, or for its device to finish with them.
_WAITING = re.compile(r"/torch/(distributed|autograd|cuda|_ops|_tensor)\b|/dpprof/measure/ranks\.py")
_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<function>\S+)')


def culprit(folder: RunFolder, ended: Exit, *, on_cuda: bool) -> int | None:
    """The rank that did not end because of another one; None if it cannot be told. 0 for a job of one rank
    or none.
    """
    if len(ended.ranks) < 2:
        return 0
    ranks = range(len(ended.ranks))
    if ended.timed_out:
        if on_cuda:
            return None
        hanging = [rank for rank in ranks if not _waits(place_of_end(folder.rank(rank)))]
        return hanging[0] if len(hanging) == 1 else None
    return min(ranks, key=lambda rank: _blamelessness(folder.rank(rank), ended.ranks[rank]))


def place_of_end(folder: RunFolder) -> str | None:
    """Where a rank's main thread was when it was told to end: `model.py, line 30, in forward`."""
    frame = _innermost(folder)
    return None if frame is None else f"{frame['file']}, line {frame['line']}, in {frame['function']}"


def _innermost(folder: RunFolder) -> "re.Match[str] | None":
    try:
        text = folder.stacks.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    main_thread = text.strip().rpartition("\n\n")[2]  # the oldest thread comes last
    return _FRAME.search(main_thread)


def _waits(place: str | None) -> bool:
    return place is not None and bool(_WAITING.search(place))


def _blamelessness(folder: RunFolder, ended: Exit) -> int:
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
    """What a rank said of its failure; empty if nothing."""
    try:
        failure, record = folder.read_error(), folder.read_record()
    except DpprofError:
        return ""
    if failure is not None:
        return f"{failure.kind}: {failure.message}"
    return " ".join(record.failed_passes.values()) if record is not None else ""
