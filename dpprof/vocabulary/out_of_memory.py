"""The words with which an error says that memory ran out."""

from dpprof.errors import message_of

_OOM_WORDS = (
    "DefaultCPUAllocator: can't allocate memory",
    "CUDA out of memory",
    "CUDA error: out of memory",
    "STATUS_ALLOC_FAILED",
)


def is_oom(error: BaseException) -> bool:
    """Whether an error says that memory ran out: CUDA's, a CUDA library's, torch's CPU
    allocator's or Python's own."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    text = message_of(error)
    return any(words in text for words in _OOM_WORDS)
