import time

import pytest

from dpprof.measure.passes import ceilings


def test_bytes_and_flops_are_divided_by_the_quickest_try(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 9.0] + [t for i in range(ceilings._TRIES) for t in (10.0 * i, 10.0 * i + 2 + i)])
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    assert ceilings.copy_bytes_per_s("cpu", 4096) == 2 * 4096 / 2.0  # read once and written once


def test_a_matrix_product_has_two_flops_for_every_multiplication(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceilings, "_fastest", lambda work, device: (work(), 0.5)[1])
    assert ceilings.matmul_flop_per_s("cpu", "fp32", 16) == 2 * 16**3 / 0.5
    assert ceilings.matmul_flop_per_s("cpu", "bf16", 16) == 2 * 16**3 / 0.5
