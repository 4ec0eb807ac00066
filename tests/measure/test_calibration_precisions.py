"""Calibration in several precisions: what each times, in which order, and what is kept when it is cut off."""

import json
import subprocess
import sys
from functools import cache, partial
from pathlib import Path

import pytest
import torch
from torch import Tensor

from dpprof.config.device_times import TIMES, DeviceTimes
from dpprof.errors import DpprofError
from dpprof.measure import calibration
from dpprof.measure.calibration import computing_in, ledger_call, measure, seconds_of, write_times
from dpprof.measure.calibration_cases import Case, cases
from dpprof.measure.passes.operator_call import OperatorCall, as_computed
from dpprof.measure.passes.predictor import Predictor
from dpprof.vocabulary.operator_kinds import kind_of

CONVOLUTIONS = ("convolution", "convolution_backward", "convolution_of_inputs", "convolution_of_weights")
MATRICES = ("product", *CONVOLUTIONS)


@cache
def calls(precision: str) -> list[OperatorCall]:
    """The calls of the smaller cases of a precision."""
    with computing_in(precision):
        return [ledger_call(case, "cpu") for case in cases(precision, "cpu", 1e7, 2**21)]


def kinds(precision: str, dtype: str) -> set[str]:
    return {kind_of(call.name, call.is_dense) for call in calls(precision) if call.dtype == dtype}


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
