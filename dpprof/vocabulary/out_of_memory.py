"""The words with which an error says that memory ran out."""

from dpprof.errors import message_of

_OOM_WORDS = (
    "DefaultCPUAllocator: can't allocate memory",
    "CUDA out of memory",
    "CUDA error: out of memory",
    "STATUS_ALLOC_FAILED",
    "Cuda failure 2 'out of memory'",  # NCCL's, and of its older versions
    "Cuda failure 'out of memory'",
    "Failed to CUDA calloc",
)
_OOM_ERROR = "OutOfMemoryError"


def is_oom(error: BaseException) -> bool:
    """Whether an error says that memory ran out: CUDA's, a CUDA library's, torch's CPU
    allocator's or Python's own."""
    if isinstance(error, MemoryError) or type(error).__name__ == _OOM_ERROR:
        return True
    return says_oom(message_of(error))


def says_oom(text: str) -> bool:
    """Whether an error's text says so."""
    return any(words in text for words in (*_OOM_WORDS, _OOM_ERROR))
