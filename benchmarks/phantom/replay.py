"""Sequences of allocations replayed by torch's CUDA allocator, with its answer after each.

Standard input has one JSON object a line: a `name`, the `capacity` of the device in MiB (0: the whole GPU),
and `requests`: bytes to allocate, or -1 - i to free what request i allocated. The output adds `allocated` and
`reserved` bytes and the number of `segments` after each request, and the number of `retries`. A list ends
early if the device is full. Each list needs a process of its own (`--one`), as torch keeps its segments;
settings of the allocator come from PYTORCH_CUDA_ALLOC_CONF.
"""

import json
import os
import sys
from typing import Any


def answers(requests: list[int]) -> dict[str, Any]:
    """Do the requests and return the allocator's figures."""
    import torch

    held: dict[int, int] = {}
    found: dict[str, Any] = {"allocated": [], "reserved": [], "segments": [], "is_full": False}
    for index, request in enumerate(requests):
        try:
            if request < 0:
                torch.cuda.caching_allocator_delete(held.pop(-1 - request))
            else:
                held[index] = torch.cuda.caching_allocator_alloc(request)
        except torch.OutOfMemoryError:
            found["is_full"] = True
            break
        stats = torch.cuda.memory_stats()
        found["allocated"].append(stats["allocated_bytes.all.current"])
        found["reserved"].append(stats["reserved_bytes.all.current"])
        found["segments"].append(stats["segment.all.current"])
    found["retries"] = torch.cuda.memory_stats()["num_alloc_retries"]
    return found


def main() -> None:
    """Replay each list in a fork."""
    for line in sys.stdin:
        asked = json.loads(line)
        if child := os.fork():
            os.waitpid(child, 0)
            continue
        if asked["capacity"]:
            os.environ |= {"PHANTOM_GIB": str(asked["capacity"] / 1024), "PHANTOM_CONTEXT_MIB": "0"}
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = asked["conf"]
        print(json.dumps({**asked, **answers(asked["requests"])}), flush=True)
        os._exit(0)


if __name__ == "__main__":
    main()
