"""What a rank says that has lost another one: a consequence, and not the cause, of an experiment's end.

The texts are those of torch 2.8 to 2.13, of gloo and of NCCL.
"""

_LOST = (
    "gloo/transport",
    "Connection closed by peer",
    "Connection reset by peer",
    "Connection was likely closed",
    "DistNetworkError",
    "remote process exited",
    "Broken pipe",
)


def has_lost_a_rank(text: str) -> bool:
    """Whether an error's text says that another rank has gone."""
    return any(words in text for words in _LOST)
