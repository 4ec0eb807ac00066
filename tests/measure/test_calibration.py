"""Calibration: what each case measures, and the file that follows from a few of them."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path
from unittest import mock

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from conftest import artifacts_of, call_dpprof, fine, lay_out_store, runs_of
from torch import Tensor
from torch._C._distributed_c10d import HashStore

from dpprof.config.device_times import TIMES, DeviceTimes
from dpprof.config.entry_points import CalibrateConfig
from dpprof.errors import DpprofError
from dpprof.measure import calibration, calibration_cases
from dpprof.measure.calibration import computing_in, ledger_call, measure, seconds_of, write_times
from dpprof.measure.calibration_cases import Case, cases
from dpprof.measure.passes.machine import issue_s
from dpprof.measure.passes.operator_call import OperatorCall, as_computed
from dpprof.measure.passes.predictor import Predictor
from dpprof.tracking.store import KIND_TAG
from dpprof.vocabulary.operator_kinds import STAND_IN, kind_of


def few(precision: str, *others: object) -> list[Case]:
    """A product; but for TF32 a sum; and for bf16 the casts."""
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    found = [Case(torch.mm, ((8, 8),) * 2, dtype=dtype)]
    if precision != "tf32":
        found.append(Case(torch.add, ((8, 8),) * 2, dtype=dtype))
    if precision == "bf16":
        found.append(Case(partial(Tensor.to, dtype=torch.bfloat16), ((8, 8),), dtype=torch.float32))
    return found


@pytest.fixture
def few_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "cases", few)
    monkeypatch.setattr(calibration, "COPY_BYTES", {"cpu": 2**20})
    monkeypatch.setattr(calibration, "MATRIX_ROWS", {"cpu": 128})


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


@pytest.mark.usefixtures("few_cases")
def test_a_table_of_few_cases_predicts_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of_each_kind = small()
    monkeypatch.setattr(calibration, "cases", lambda *asked: iter(of_each_kind))
    said: list[str] = []
    folder = tmp_path / "runs" / "here"
    folder.mkdir(parents=True)
    write_times("cpu", folder, said.append)
    times = DeviceTimes.read(folder / TIMES)
    assert said == [f"timing {len(of_each_kind)} operators in fp32, round {number} of 2" for number in (1, 2)]
    assert {each.kind for each in times.operators} >= STAND_IN.keys()
    assert times.issue_us >= 0, "beside others, a difference of two times may vanish"
    assert issue_s("cpu") > 0
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


@pytest.mark.usefixtures("few_cases")
def test_measure_says_who_else_was_busy() -> None:
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
    ranks = mock.MagicMock(rank=rank, here=2)

    def measured(*settings: object) -> Iterator[DeviceTimes]:
        for _ in range(2):
            ranks.measure()
            yield DeviceTimes(1, "a CPU", "cpu", {"float32": 1.0}, 1.0, [])

    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(calibration, "Ranks", lambda *settings: ranks)
    monkeypatch.setattr(calibration, "rank_of", lambda config: None)
    monkeypatch.setattr(calibration, "measure", measured)
    monkeypatch.setattr(calibration, "_collectives", lambda *settings: iter([]))
    write_times("cpu", tmp_path, lambda text: None)
    done = [name for name, *_ in ranks.method_calls]
    assert done[-2:] == ["meet", "leave"]
    assert done.count("measure") == 2
    assert (tmp_path / TIMES).exists() == (rank == 0)


CONVOLUTIONS = ("convolution", "convolution_backward", "convolution_of_inputs", "convolution_of_weights")
MATRICES = ("product", *CONVOLUTIONS)


@cache
def calls(precision: str) -> list[OperatorCall]:
    """The calls of the smaller cases of a precision."""
    with computing_in(precision):
        return [ledger_call(case, "cpu") for case in cases(precision, "cpu", 1e7, 2**21)]


def kinds(precision: str, dtype: str) -> set[str]:
    return {kind_of(call.name, call.is_dense) for call in calls(precision) if call.dtype == dtype}


def test_bf16_has_what_autocast_computes_in_it_and_the_casts_in_both_directions() -> None:
    of_layers = {"attention", "attention_backward", "elementwise", "transcendental", "reduction", "dropout"}
    of_layers |= {
        f"{name}{end}" for name in ("softmax", "layer_norm", "group_norm") for end in ("", "_backward")
    }
    found = kinds("bf16", "bfloat16")
    assert found >= of_layers | set(MATRICES) | {"copy", "in_place", "transpose", "unfold", "zeros"}
    assert not found & {"random", "foreach", "embedding", "sort"}, "these stay in fp32"
    assert kinds("bf16", "float32") == {"copy"}
    assert {call.name for call in calls("bf16") if call.dtype == "float32"} == {"aten::_to_copy"}
    assert "aten::_to_copy" in {call.name for call in calls("bf16") if call.dtype == "bfloat16"}


def test_bf16_operators_run_on_numbers_in_bf16() -> None:
    seen: list[torch.dtype] = []

    def work(left: Tensor, right: Tensor) -> Tensor:
        seen.extend((left.dtype, right.dtype))
        return left

    seconds_of(Case(work, ((4, 4), (4,)), dtype=torch.bfloat16), "cpu")
    assert set(seen) == {torch.bfloat16}


def test_tf32_has_what_it_changes_and_nothing_else() -> None:
    assert kinds("tf32", "float32") == set(MATRICES)
    with computing_in("tf32"):
        assert {as_computed(call).dtype for call in calls("tf32")} == {"tf32"}
        others = [as_computed(call) for call in calls("fp32") if kind_of(call.name) not in MATRICES]
        assert not [call.name for call in others if call.dtype == "tf32"]
    with computing_in("fp32"):
        assert not [call.name for call in calls("fp32") if as_computed(call).dtype == "tf32"]


def switches() -> tuple[str, bool]:
    return torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32


@pytest.mark.parametrize(
    ("precision", "expected"),
    [("fp32", ("highest", False)), ("tf32", ("high", True)), ("bf16", ("highest", False))],
)
@pytest.mark.parametrize("before", ["highest", "high"])
def test_each_precision_lets_torch_use_tf32_or_not_and_restores_what_was(
    before: str, precision: str, expected: tuple[str, bool]
) -> None:
    as_found = switches()
    torch.set_float32_matmul_precision(before)
    try:
        with computing_in(precision):
            assert switches() == expected
        assert switches() == (before, as_found[1])
    finally:
        torch.set_float32_matmul_precision(as_found[0])


@pytest.mark.usefixtures("few_cases")
def test_all_precisions_are_in_a_round_before_the_next_and_the_shorter_time_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    took = iter([*range(10, 16), 9, *range(12, 17)])
    timed: list[tuple[torch.dtype | None, bool]] = []

    def timing(case: Case, device: str) -> float:
        timed.append((case.dtype, torch.backends.cudnn.allow_tf32))
        return float(next(took)) / 1e6

    monkeypatch.setattr(calibration, "seconds_of", timing)
    said: list[str] = []
    first, second = measure("cpu", said.append, ("fp32", "tf32", "bf16"))
    fp32, tf32, bf16 = (torch.float32, False), (torch.float32, True), (torch.bfloat16, False)
    assert timed == [fp32, fp32, tf32, bf16, bf16, fp32] * 2
    assert said == [f"timing 6 operators in fp32, tf32, bf16, round {number} of 2" for number in (1, 2)]
    keys = [("product", "float32"), ("elementwise", "float32"), ("product", "tf32")]
    keys += [("product", "bfloat16"), ("elementwise", "bfloat16"), ("copy", "float32")]
    for found, us in ((first, [10, 11, 12, 13, 14, 15]), (second, [9, 11, 12, 13, 14, 15])):
        assert [(each.kind, each.dtype) for each in found.operators] == keys
        assert [each.points[0][-1] for each in found.operators] == pytest.approx(us)
        assert set(found.tflops) == {"float32", "tf32", "bfloat16"}
        assert min(found.tflops.values()) > 0
        assert found.launch_us == pytest.approx(11), "the float32 one"


@pytest.mark.usefixtures("few_cases")
def test_rates_and_the_launch_are_known_without_fp32_too(tmp_path: Path) -> None:
    write_times("cpu", tmp_path, lambda text: None, ["bf16"])
    found = DeviceTimes.read(tmp_path / TIMES)
    assert set(found.tflops) == {"float32", "bfloat16"}
    assert {each.dtype for each in found.operators if each.kind == "product"} == {"bfloat16"}
    elementwise = next(each for each in found.operators if each.kind == "elementwise")
    assert found.launch_us == elementwise.points[0][-1]
    assert Predictor(found).source == found.gpu
    *_, found = measure("cpu", lambda text: None, ["tf32"])
    assert found.launch_us > 0


@pytest.mark.usefixtures("few_cases")
def test_what_is_cut_off_in_the_second_round_keeps_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def say(text: str) -> None:
        if "round 2" in text:
            assert (tmp_path / TIMES).exists(), "the first round is written before the second begins"
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_times("cpu", tmp_path, say, ["fp32", "bf16"])
    found = DeviceTimes.read(tmp_path / TIMES)
    assert {each.dtype for each in found.operators} == {"float32", "bfloat16"}
    assert found.issue_us >= 0
    assert [path.name for path in tmp_path.iterdir()] == [TIMES], "nothing in part"


def test_on_a_gpu_fp32_has_the_optimizers_on_lists_and_noise_in_place() -> None:
    def listed(device: str) -> list[Case]:
        return list(cases("fp32", device, 0, 2**20))

    more = listed("cuda")[len(listed("cpu")) :]
    smallest = {ledger_call(case, "cpu").name: case for case in reversed(more)}
    updates = ("mul_", "add_", "lerp_", "addcmul_", "sqrt", "div_", "addcdiv_")
    others = {"aten::_fused_sgd_", "aten::_fused_adamw_", "aten::normal_"}
    assert smallest.keys() == {f"aten::_foreach_{name}" for name in updates} | others
    for name, case in smallest.items():
        assert seconds_of(case, "cpu") > 0, name
        call = ledger_call(case, "cpu")
        assert call.num_bytes > 0
        assert call.dtype == "float32"


def test_what_a_gpu_has_no_units_for_is_left_out_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (7, 5))
    assert calibration._possible(["fp32", "tf32", "bf16"], "cuda", said.append) == ["fp32"]
    assert said == ["left out, as this GPU has no units for it: tf32, bf16"]
    with pytest.raises(DpprofError, match="precisions: this GPU has none of bf16"):
        calibration._possible(["bf16"], "cuda", said.append)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    assert calibration._possible(["tf32", "bf16"], "cuda", said.append) == ["tf32", "bf16"]
    assert calibration._possible(["bf16"], "cpu", said.append) == ["bf16"]


BARE = """
import sys
for name in ("mlflow", "pydantic", "click", "rich", "jinja2", "matplotlib", "pandas", "yaml", "transformers"):
    sys.modules[name] = None
import torch
from dpprof.measure import calibration, entry
from dpprof.measure.calibration_cases import Case

calibration.cases = lambda precision, *others: [
    Case(torch.add, ((8, 8), (8, 8)), dtype=torch.bfloat16 if precision == "bf16" else torch.float32)
]
calibration.COPY_BYTES, calibration.MATRIX_ROWS = {"cpu": 2**20}, {"cpu": 128}
sys.exit(entry.main())
"""


@pytest.mark.parametrize(
    ("asked", "dtypes", "error"),
    [
        (["cpu"], {"float32"}, ""),
        (["cpu", "bf16,fp32"], {"float32", "bfloat16"}, ""),
        (["cpu", "tf32"], None, "precisions: got 'tf32'"),
        (["cpu", "fp8"], None, "precisions: got 'fp8'"),
        ([], None, "--calibrate DEVICE [PRECISIONS]] RUN_FOLDER"),
    ],
)
def test_it_runs_where_only_torch_and_opacus_are_installed(
    asked: list[str], dtypes: set[str] | None, error: str, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", BARE, "--calibrate", *asked, *([str(tmp_path)] if asked else [])]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode == 0) == (dtypes is not None), ended.stderr
    assert error in ended.stderr
    if dtypes is not None:
        data = json.loads((tmp_path / TIMES).read_text())
        assert {each["dtype"] for each in data["operators"]} == dtypes
    else:
        assert not (tmp_path / TIMES).exists()
