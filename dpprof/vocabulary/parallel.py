"""How the ranks of an experiment share the training, and the words for what they send each other."""

NONE, DDP, FSDP2 = "none", "ddp", "fsdp2"
PARALLEL = (NONE, DDP, FSDP2)
# The name of torch's process group that sends nothing.
FAKE = "fake"

ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST = "all_reduce", "all_gather", "reduce_scatter", "broadcast"
# The class of operators, and the category of memory, that ranks communicate by.
COMMUNICATION = "communication"
# What an operator's name begins with that ranks communicate by.
COLLECTIVE_NAMESPACES = ("c10d::", "_c10d_functional::")


def collective_of(operator: str) -> str | None:
    """The collective that an operator is, e.g. `c10d::_allgather_base_`; None for one that sends nothing."""
    if not operator.startswith(COLLECTIVE_NAMESPACES):
        return None
    bare = operator.rpartition("::")[2].replace("_", "")
    for collective in (ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST):
        if collective.replace("_", "") in bare:
            return collective
    return None


def bytes_sent(collective: str, payload: int, world_size: int) -> int:
    """Bytes that each rank sends over a ring for a payload, the size of the whole tensor (Patarasuk and Yuan
    2009): an all-reduce is a reduce-scatter and an all-gather.
    """
    times = 2 if collective == ALL_REDUCE else 1
    if collective == BROADCAST:
        return payload if world_size > 1 else 0
    return times * (world_size - 1) * payload // world_size
