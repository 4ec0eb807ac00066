"""Products of float32 on a GPU: as torch is set, or in TF32."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from dpprof.vocabulary.precision import TF32


@contextmanager
def products_in(precision: str) -> Iterator[None]:
    """Let torch multiply float32 in TF32 while entered, if that is the precision.

    Convolutions have a setting of their own, `torch.backends.cudnn.allow_tf32`, which is on by default.
    """
    if precision != TF32:
        yield
        return
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
