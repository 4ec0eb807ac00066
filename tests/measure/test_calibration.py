"""Calibration: what each case measures, and the file that follows from a few of them."""

import json
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from functools import cache
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from conftest import artifacts_of, call_dpprof, fine, lay_out_store, runs_of
from torch._C._distributed_c10d import HashStore

from dpprof.config.device_times import TIMES, DeviceTimes
from dpprof.config.entry_points import CalibrateConfig
from dpprof.measure import calibration, calibration_cases
from dpprof.measure.calibration import ledger_call, measure, seconds_of, write_times
from dpprof.measure.calibration_cases import Case, cases
from dpprof.measure.passes.machine import issue_s
from dpprof.measure.passes.predictor import Predictor
from dpprof.tracking.store import KIND_TAG
from dpprof.vocabulary.operator_kinds import STAND_IN, kind_of


@cache
def small() -> list[Case]:
    """Of each kind the case with the fewest numbers."""
    found: dict[tuple[str, bool], Case] = {}
    for case in cases("fp32", "cpu", 1e9, 2**24):
        call = ledger_call(case, "cpu")
        found.setdefault((kind_of(call.name, call.is_dense), len(case.shapes) > 1), case)
    return list(found.values())


def test_every_kind_that_needs_a_stand_in_is_measured() -> None:
    kinds = set()
    for case in small():
        call = ledger_call(case, "cpu")
        assert call.num_bytes > 0
        kinds.add(kind_of(call.name, call.is_dense))
    assert kinds >= STAND_IN.keys() | {"product", "elementwise"}


def test_the_time_is_that_of_the_operator() -> None:
    quick, slow = (seconds_of(Case(torch.mm, ((side, side),) * 2), "cpu") for side in (32, 512))
    assert 0 < quick < slow
    gradient = next(
        case for case in calibration_cases._with_gradients(F.relu, (4, 4)) if case.work is not F.relu
    )
    output, above, (x,) = gradient.prepare(torch.randn(4, 4))
    (found,) = gradient.work(output, above, [x])
    assert torch.equal(found, above * (x > 0))


def test_a_table_of_few_cases_predicts_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = small()
    monkeypatch.setattr(calibration, "cases", lambda *asked: iter(few))
    monkeypatch.setattr(calibration, "COPY_BYTES", {"cpu": 2**20})
    monkeypatch.setattr(calibration, "MATRIX_ROWS", {"cpu": 128})
    said: list[str] = []
    folder = tmp_path / "runs" / "here"
    folder.mkdir(parents=True)
    write_times("cpu", folder, said.append)
    times = DeviceTimes.read(folder / TIMES)
    assert said == [f"timing {len(few)} operators in fp32, round {number} of 2" for number in (1, 2)]
    assert {each.kind for each in times.operators} >= STAND_IN.keys()
    assert times.issue_us >= 0, "beside others, a difference of two times may vanish"
    assert times.versions == {"torch": torch.__version__}
    assert Predictor(times).source == times.gpu

    lay_out_store(tmp_path)
    (folder / "run.log").write_text("")
    fine(call_dpprof(tmp_path, "log", "runs/here"))
    run = runs_of(tmp_path)["here"]
    assert run.data.tags[KIND_TAG] == "calibration"
    told = run.data.metrics.get("overhead/issue_us")
    assert told == (times.issue_us or None)
    found = {name: run.data.params[name] for name in ("device", "precisions", "world_size", "torch")}
    assert found == {"device": "cpu", "precisions": "fp32", "world_size": "1", "torch": torch.__version__}
    assert run.data.metrics["ceilings/copy_gb_per_s"] == pytest.approx(times.gb_per_s)
    assert artifacts_of(tmp_path, run) == {"run.log", TIMES}
    assert run.info.status == "FINISHED"


def test_the_time_to_issue_an_operator_is_measured() -> None:
    assert issue_s("cpu") > 0


def test_measure_says_who_else_was_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    few = [case for case in small() if case.work is torch.add][:1]
    monkeypatch.setattr(calibration, "cases", lambda *asked: iter(few))
    monkeypatch.setattr(calibration, "COPY_BYTES", {"cpu": 2**20})
    monkeypatch.setattr(calibration, "MATRIX_ROWS", {"cpu": 128})
    first, found = measure("cpu", lambda text: None)
    assert [each.rounds for each in (first, found)] == [1, 2]
    assert not first.is_whole
    assert found.is_whole
    assert found.others_pct is None or 0 <= found.others_pct < 1000  # ticks: short times are not exact
    assert (found.processors, found.threads) == (len(os.sched_getaffinity(0)), torch.get_num_threads())
    assert json.dumps(asdict(found))
    assert CalibrateConfig().world_size == 1


def test_fsdp2s_collectives_have_what_its_hooks_take(monkeypatch: pytest.MonkeyPatch) -> None:
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    try:
        around = calibration._of_small_layers("cpu")
        monkeypatch.setattr(calibration, "_of_small_layers", lambda device: {"all_gather": 1e9})
        smallest = {each.name: min(each.points)[1] for each in calibration._collectives(1, "cpu")}
    finally:
        dist.destroy_process_group()
    assert min(around["all_gather"], around["reduce_scatter"]) > 0
    assert smallest["all_gather"] == pytest.approx(1e9)
    assert max(smallest["all_reduce"], smallest["reduce_scatter"]) < 1e9


@pytest.mark.parametrize("rank", [0, 1])
def test_no_rank_leaves_before_all_have_measured(
    rank: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank that has ended counts as another process to those that still measure."""
    done: list[str] = []
    table = DeviceTimes(1, "a CPU", "cpu", {"float32": 1.0}, 1.0, [])

    class Recorded:
        here = 2

        def __init__(self, *settings: object) -> None:
            self.rank = rank

        def meet(self) -> None:
            done.append("meet")

        def leave(self) -> None:
            done.append("leave")

        def together(self) -> AbstractContextManager[None]:
            return nullcontext()

    def measured(*settings: object) -> Iterator[DeviceTimes]:
        for _ in range(2):
            done.append("measure")
            yield table

    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(calibration, "Ranks", Recorded)
    monkeypatch.setattr(calibration, "rank_of", lambda config: None)
    monkeypatch.setattr(calibration, "measure", measured)
    monkeypatch.setattr(calibration, "_collectives", lambda *settings: iter([]))
    write_times("cpu", tmp_path, lambda text: None)
    assert done[-2:] == ["meet", "leave"]
    assert done.count("measure") == 2
    assert (tmp_path / TIMES).exists() == (rank == 0)
