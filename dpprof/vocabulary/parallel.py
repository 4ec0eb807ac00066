"""Ways in which ranks share the training, and the names of their collectives."""

from functools import cache

NONE, DDP, FSDP2 = "none", "ddp", "fsdp2"
PARALLEL = (NONE, DDP, FSDP2)
# torch's process group that sends nothing.
FAKE = "fake"

ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST = "all_reduce", "all_gather", "reduce_scatter", "broadcast"
# Operator class and memory category of communication.
COMMUNICATION = "communication"
COLLECTIVE_NAMESPACES = ("c10d::", "_c10d_functional::")


@cache
def collective_of(operator: str) -> str | None:
    """Return the collective of an operator, e.g. `c10d::_allgather_base_`; None if it sends nothing."""
    if not operator.startswith(COLLECTIVE_NAMESPACES):
        return None
    bare = operator.rpartition("::")[2].replace("_", "")
    for collective in (ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST):
        if collective.replace("_", "") in bare:
            return collective
    return None


def bytes_sent(collective: str, payload: int, world_size: int) -> int:
    """Return the bytes that each rank sends over a ring for a whole tensor (Patarasuk and Yuan 2009)."""
    times = 2 if collective == ALL_REDUCE else 1
    if collective == BROADCAST:
        return payload if world_size > 1 else 0
    return times * (world_size - 1) * payload // world_size
