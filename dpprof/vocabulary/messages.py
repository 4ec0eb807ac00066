"""Texts in logs and errors that other code searches for: marked lines, out of memory, lost ranks."""

from dpprof.errors import message_of

SAID = "[dpprof] "
# Said once an experiment has measured all its times: from then on nothing in it needs a quiet machine.
TIMES_TAKEN = "all times have been measured"

# Prefix of lines in a rank's stacks that name a file or folder whose code waits for other ranks.
WAITS_IN = "waits in "

# Error of dpprof's own trainers where another rank has refused a sample.
REFUSED_ELSEWHERE = "another rank refused its samples' gradients: no rank trains on this step"
_LOST = (
    REFUSED_ELSEWHERE,
    "gloo/transport",
    "Connection closed by peer",
    "Connection reset by peer",
    "Connection was likely closed",
    "DistNetworkError",
    "remote process exited",
    "Broken pipe",
)


def has_lost_a_rank(text: str) -> bool:
    """Tell whether an error's text says that another rank is gone."""
    return any(words in text for words in _LOST)


_OOM_WORDS = (
    "DefaultCPUAllocator: can't allocate memory",
    "CUDA out of memory",
    "CUDA error: out of memory",
    "STATUS_ALLOC_FAILED",
    "Cuda failure 2 'out of memory'",  # NCCL; the next one in older versions
    "Cuda failure 'out of memory'",
    "Failed to CUDA calloc",
)
_OOM_ERROR = "OutOfMemoryError"


def is_oom(error: BaseException) -> bool:
    """Tell whether memory ran out: CUDA's, a CUDA library's, torch's CPU allocator's or Python's."""
    if isinstance(error, MemoryError) or type(error).__name__ == _OOM_ERROR:
        return True
    return says_oom(message_of(error))


def says_oom(text: str) -> bool:
    """Tell whether an error's text says that memory ran out."""
    return any(words in text for words in (*_OOM_WORDS, _OOM_ERROR))
