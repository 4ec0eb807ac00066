"""Predicted times of operators: exact where measured, wider farther away, and said where assumed."""

import math
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from example_runs import known

from dpprof.config.device_times import CollectiveTimes, DeviceTimes, OperatorTimes
from dpprof.config.devices import DEVICES
from dpprof.measure.passes.operator_call import OperatorCall, as_computed
from dpprof.measure.passes.predictor import Predictor, predictor_of
from dpprof.record.ledger import CollectiveRow, TrafficRow

# At one TFLOP/s and one GB/s.
SIDES = (100, 200, 400, 800)


def serial_s(side: int = 200, tflops: float = 1.0, gb_per_s: float = 1.0) -> float:
    """Seconds to move a product's matrices, then to multiply."""
    return 12e-9 * side**2 / gb_per_s + 2e-12 * side**3 / tflops


def product(side: int, us: float) -> list[float]:
    return [1, side, side, side, 12 * side**2, 2 * side**3, us]


def table(**changes: object) -> DeviceTimes:
    """Products that take twice their serial time, and elementwise operators at the memory's rate."""
    products = [product(side, 2e6 * serial_s(side)) for side in SIDES]
    elements = [[1000.0 * 4**power, 1000 * 4**power, 0, 4**power] for power in range(6)]
    operators = [
        OperatorTimes("product", "float32", "here", products),
        OperatorTimes("elementwise", "float32", "here", elements),
    ]
    settings = {"launch_us": 1.0, "issue_us": 10.0} | changes
    return DeviceTimes(1, "a GPU", "cuda", {"float32": 1.0}, 1.0, operators, **settings)  # type: ignore[arg-type]


def call(name: str = "aten::mm", side: int = 200, **changes: object) -> OperatorCall:
    shapes = ((side, side), (side, side))
    made = OperatorCall(name, "float32", shapes, True, 12 * side**2, 2 * side**3)
    return made._replace(**changes)  # type: ignore[arg-type]


def predicted(predictor: Predictor, *calls: OperatorCall) -> TrafficRow:
    row = TrafficRow("aten::mm", "matrix_product", "forward", 0, 0, 0, 0)
    for each in calls:
        predictor.add(each, row)
    return row


def test_a_measured_size_takes_as_long_as_it_took_and_calls_add_up() -> None:
    row = predicted(Predictor(table()), call(), call())
    assert row.predicted_s == pytest.approx(2 * 2 * serial_s())
    assert row.least_s <= row.predicted_s <= row.most_s


def test_a_processor_adds_what_the_host_takes_and_a_gpu_runs_by_its_clock() -> None:
    on_gpu, on_cpu = (Predictor(times) for times in (table(), on_processor()))
    rows = [predicted(predictor, call()) for predictor in (on_gpu, on_cpu)]
    assert rows[1].predicted_s - rows[0].predicted_s == pytest.approx(10e-6)
    for predictor, row in zip((on_gpu, on_cpu), rows, strict=True):
        found = predictor.clock.end()["forward"]
        assert (found.seconds, found.least_s, found.most_s) == pytest.approx(
            (row.predicted_s, row.least_s, row.most_s)
        )


def test_another_card_with_the_same_chip_multiplies_as_fast_in_a_wider_range() -> None:
    predictor = known(predictor_of("V100-32GB"))
    card = known(DeviceTimes.shipped("V100-32GB"))
    products = next(each for each in card.operators if each.kind == "product")
    batch, rows, columns, inner, num_bytes, flops, us = products.points[0]
    shapes = ((int(batch), int(rows), int(inner)), (int(batch), int(inner), int(columns)))
    same = OperatorCall("aten::bmm", "float32", shapes, True, int(num_bytes), int(flops))
    on_card, on_target = predicted(Predictor(card), same), predicted(predictor, same)
    assert on_target.predicted_s == pytest.approx(on_card.predicted_s)
    assert on_target.most_s / on_card.most_s == pytest.approx(math.exp(0.11))
    assert us > 0


@pytest.mark.parametrize(("target", "copies"), [("V100-32GB", True), ("A100-40GB", False)])
def test_a_gpu_without_matrix_units_copies_what_has_its_channels_last(target: str, copies: bool) -> None:
    usual, last = (
        predicted(known(predictor_of(target)), convolution()._replace(is_dense=is_dense)).predicted_s
        for is_dense in (True, False)
    )
    assert (last > usual) == copies


def on_processor() -> DeviceTimes:
    times = table()
    return replace(times, device="cpu")


def test_the_range_is_wider_far_from_what_was_measured() -> None:
    uneven = table()
    for i, point in enumerate(uneven.operators[0].points):
        point[-1] *= 1 + 0.2 * i
    near, far = (predicted(Predictor(uneven), call(side=side)) for side in (210, 20_000))
    widths = [math.log(row.most_s / row.least_s) for row in (near, far)]
    assert 0 < widths[0] <= widths[1]


def test_a_kernel_takes_at_least_its_launch() -> None:
    tiny = call("aten::add", num_bytes=8, flops=0)
    assert predicted(Predictor(table()), tiny).predicted_s == pytest.approx(1e-6)


def test_an_operator_moves_its_bytes_then_computes() -> None:
    usual = call()
    heavier = usual._replace(flops=2 * usual.flops)
    wider = usual._replace(num_bytes=2 * usual.num_bytes)
    times = [predicted(Predictor(table()), each).predicted_s for each in (usual, heavier, wider)]
    assert times[1] - times[0] == pytest.approx(2 * usual.flops / 1e12)
    assert times[2] - times[0] == pytest.approx(2 * usual.num_bytes / 1e9)


def test_what_the_last_cache_holds_moves_faster_but_not_in_the_longest_time() -> None:
    each = call("aten::add", num_bytes=4_000_000, flops=0)
    rows = []
    for cached in (0, 2_000_000, 4_000_000):
        row = predicted(Predictor(table()))
        Predictor(table()).add(each, row, cached)
        rows.append(row)
    times = [row.predicted_s for row in rows]
    assert times == pytest.approx([4e-3, 2e-3 + 2e-3 / 2.5, 4e-3 / 2.5])
    assert [row.least_s / row.predicted_s for row in rows] == pytest.approx(
        [rows[0].least_s / rows[0].predicted_s] * 3
    )
    assert [row.most_s for row in rows] == pytest.approx([rows[0].most_s] * 3)


def test_the_last_cache_shortens_no_time_below_a_launch_nor_on_a_processor() -> None:
    tiny, large = (call("aten::add", num_bytes=size, flops=0) for size in (1_500, 4_000_000))
    on_processor_s = predicted(Predictor(on_processor()), large).predicted_s
    for times, each, seconds in ((table(), tiny, 1e-6), (on_processor(), large, on_processor_s)):
        row = predicted(Predictor(times))
        Predictor(times).add(each, row, each.num_bytes)
        assert row.predicted_s == pytest.approx(seconds)


def test_a_convolutions_backward_is_two_kernels_where_both_were_measured() -> None:
    sizes = [9, 128, 16, 8]
    ends = [
        OperatorTimes(f"convolution{end}", "float32", "here", [[*sizes, 100_000, 1_000_000, us]])
        for end, us in (("_of_inputs", 700.0), ("_of_weights", 300.0))
    ]
    times = table()
    times = replace(times, operators=[*times.operators, *ends])
    shapes = ((2, 16, 8, 8), (2, 8, 10, 10), (16, 8, 3, 3))
    given, inputs, weights = 2048 + 1600 + 1152, 1600, 1152
    both = call(
        "aten::convolution_backward",
        shapes=shapes,
        num_bytes=4 * (given + inputs + weights),
        flops=4 * 2048 * 8 * 9,
    )
    alone = [
        both._replace(name=both.name + end, num_bytes=4 * (given + made), flops=both.flops // 2)
        for end, made in (("_of_inputs", inputs), ("_of_weights", weights))
    ]
    together, apart = Predictor(times), Predictor(times)
    rows = predicted(together, both), predicted(apart, *alone)
    assert rows[0].predicted_s == pytest.approx(rows[1].predicted_s)
    assert (rows[0].least_s, rows[0].most_s) == pytest.approx((rows[1].least_s, rows[1].most_s), rel=0.05)
    assert not together.assumed


@pytest.mark.parametrize("target", ["V100-32GB", "P100", "T4"])
def test_gpus_with_measured_convolutions_assume_nothing_of_them(target: str) -> None:
    images, weight = (64, 64, 56, 56), (64, 64, 3, 3)
    flops = 2 * 64 * 64 * 56 * 56 * 64 * 9
    predictor = known(predictor_of(target))
    for name, shapes, times in (("", (images, weight), 1), ("_backward", (images, images, weight), 2)):
        each = call(f"aten::convolution{name}", shapes=shapes, num_bytes=200_000_000, flops=times * flops)
        assert predicted(predictor, each).arithmetic_s > 0
    assert not [said for said in predictor.assumed if " as product" in said]


@pytest.mark.parametrize(
    ("name", "dtype", "told"),
    [
        ("aten::mm", "float32", ""),
        ("aten::mm", "bfloat16", "product as in float32"),
        ("aten::gelu", "float32", "transcendental as elementwise"),
        ("aten::convolution", "float32", "convolution as product"),
    ],
)
def test_what_is_assumed_is_said_and_widens_the_range(name: str, dtype: str, told: str) -> None:
    predictor = Predictor(table())
    shapes = ((2, 8, 10, 10), (16, 8, 3, 3)) if "convolution" in name else call().shapes
    row = predicted(predictor, call(name, dtype=dtype, shapes=shapes))
    assert list(predictor.assumed) == ([told] if told else [])
    if " as " in told and "float32" not in told:
        assert row.most_s / row.predicted_s >= math.exp(0.3)


@pytest.fixture(autouse=True)
def _without_tf32() -> Iterator[None]:
    """Tests begin without TF32, and leave torch's switches as they were."""
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    allow_tf32()
    yield
    torch.set_float32_matmul_precision(before[0])
    torch.backends.cudnn.allow_tf32 = before[1]


def allow_tf32(*, products: bool = False, convolutions: bool = False) -> None:
    """Let torch use TF32, by its usual switches."""
    torch.set_float32_matmul_precision("high" if products else "highest")
    torch.backends.cudnn.allow_tf32 = convolutions


def convolution(name: str = "aten::convolution") -> OperatorCall:
    return call(name, shapes=((2, 8, 10, 10), (16, 8, 3, 3)))


def with_tf32(**changes: object) -> DeviceTimes:
    """The same table, where products in TF32 compute 20 times as fast, and convolutions take a hundredth."""
    times = table(**changes)
    points = [product(side, 2e6 * serial_s(side, 20)) for side in SIDES]
    in_tf32 = [replace(times.operators[0], dtype="tf32", points=points)]
    for dtype, us in (("float32", 1000.0), ("tf32", 10.0)):
        in_tf32.append(
            OperatorTimes("convolution", dtype, "here", [[9, 128, 16, 8, 480_000, 16_000_000, us]])
        )
    return replace(times, tflops=times.tflops | {"tf32": 20.0}, operators=times.operators + in_tf32)


@pytest.mark.parametrize("products", [False, True])
@pytest.mark.parametrize("convolutions", [False, True])
def test_products_and_convolutions_are_looked_up_in_tf32_where_torch_allows_each(
    products: bool, convolutions: bool
) -> None:
    allow_tf32(products=products, convolutions=convolutions)
    predictor = Predictor(with_tf32())
    for name in ("aten::mm", "aten::addmm", "aten::bmm"):
        found = predicted(predictor, call(name)).predicted_s
        assert found == pytest.approx(2 * serial_s(tflops=20 if products else 1)), name
    first, second = (predicted(predictor, convolution()).predicted_s for _ in range(2))
    assert first == second
    types = {each.dtype for each in predictor.known if "convolution" in each.name}
    assert types == {"tf32" if convolutions else "float32"}
    assert not predictor.assumed


def test_a_switch_that_changes_later_counts_from_then_on() -> None:
    predictor = Predictor(with_tf32())
    assert predicted(predictor, call()).predicted_s == pytest.approx(2 * serial_s())
    allow_tf32(products=True)
    assert predicted(predictor, call()).predicted_s == pytest.approx(2 * serial_s(tflops=20))


@pytest.mark.parametrize(
    "name", ["aten::gelu", "aten::_scaled_dot_product_efficient_attention", "aten::_foreach_mul_"]
)
def test_other_operators_and_types_are_not_in_tf32(name: str) -> None:
    allow_tf32(products=True, convolutions=True)
    for each in (call(name), call(dtype="bfloat16"), call(dtype="float64")):
        assert as_computed(each) == each


def gains(target: str) -> bool:
    """Whether TF32 has a higher rate than fp32: consumers' GPUs have the same, and older ones lack it."""
    device = DEVICES[target]
    return (device.tf32_tflops or 0.0) > device.fp32_tflops


@pytest.mark.parametrize("target", [name for name in DEVICES if gains(name)])
def test_without_times_in_tf32_a_product_is_as_efficient_as_in_bf16_and_that_is_said(target: str) -> None:
    tflops, large = known(DEVICES[target].tf32_tflops), call(side=8192)
    found = []
    for dtype, products in (("float32", True), ("bfloat16", False), ("float32", False)):
        predictor = known(predictor_of(target))
        allow_tf32(products=products)
        found.append(predicted(predictor, large._replace(dtype=dtype)))
        if products:
            (said,) = predictor.assumed
            assert said.startswith("product as in bfloat16")
    in_tf32, in_bf16, in_fp32 = found
    gb_per_s = DEVICES[target].bandwidth_gb_per_s
    slower = serial_s(8192, tflops, gb_per_s) / serial_s(8192, 2 * tflops, gb_per_s)
    assert 2e-12 * 8192**3 / tflops < in_tf32.predicted_s < in_fp32.predicted_s
    assert in_tf32.predicted_s == pytest.approx(slower * in_bf16.predicted_s, rel=1e-6)
    assert in_tf32.most_s / in_tf32.predicted_s >= math.exp(0.3)


@pytest.mark.parametrize("target", [name for name in DEVICES if not gains(name)])
def test_where_tf32_gains_nothing_times_in_float32_count_to_the_bit_and_that_is_said(target: str) -> None:
    calls = [call(side=512), convolution(), convolution("aten::convolution_backward_of_inputs")]
    found, said = [], []
    for allowed in (False, True):
        predictor = known(predictor_of(target))
        allow_tf32(products=allowed, convolutions=allowed)
        row = predicted(predictor, *calls)
        found.append((row.predicted_s, row.least_s, row.most_s))
        said.append(" and ".join(predictor.assumed))
    assert found[0] == found[1]
    assert "in float32" not in said[0]
    assert "product as in float32" in said[1]


def without_times_in_tf32() -> DeviceTimes:
    times = table()
    return replace(times, tflops=times.tflops | {"tf32": 20.0})


@pytest.mark.parametrize("times", [replace(with_tf32(), device="cpu"), without_times_in_tf32()])
def test_tf32_changes_nothing_on_a_processor_nor_by_its_rate_alone(times: DeviceTimes) -> None:
    calls = [call(), call(side=20_000), convolution()]
    expected = predicted(Predictor(times), *calls).predicted_s
    allow_tf32(products=True, convolutions=True)
    assert predicted(Predictor(times), *calls).predicted_s == expected


@pytest.mark.parametrize("is_allowed", [False, True])
def test_torchs_newer_switches_count_too(is_allowed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> str:
        raise RuntimeError("you have used mix of the legacy and new APIs")

    class Set:
        fp32_precision = "tf32" if is_allowed else "ieee"
        conv: "type[Set]"
        allow_tf32 = property(lambda self: refuse())

    Set.conv = Set
    monkeypatch.setattr(torch, "get_float32_matmul_precision", refuse)
    monkeypatch.setattr(torch.backends.cuda, "matmul", Set())
    monkeypatch.setattr(torch.backends, "cudnn", Set())
    expected = "tf32" if is_allowed else "float32"
    assert as_computed(call()).dtype == as_computed(convolution()).dtype == expected


def test_other_tables_stand_in_with_the_devices_own_rates() -> None:
    own = table()
    own.operators.pop(0)
    predictor = Predictor(own, [replace(table(), gpu="another GPU")], {"float32": 2.0}, 2.0)
    row = predicted(predictor, call())
    assert list(predictor.assumed) == ["product as on another GPU"]
    assert row.predicted_s == pytest.approx(serial_s()), "twice as fast"


def test_a_form_that_is_not_known_goes_by_bytes_and_flops() -> None:
    predictor = Predictor(table())
    row = predicted(predictor, call(shapes=((4,),)))
    assert row.predicted_s == pytest.approx(serial_s())
    assert list(predictor.assumed) == ["product by bytes and FLOPs"]


def test_collectives_take_what_the_nearest_number_of_ranks_took() -> None:
    points = [[1000.0, 10.0], [3000.0, 30.0]]
    of_two = CollectiveTimes("all_reduce", 2, "here", [[1000.0, 1.0]])
    predictor = Predictor(table(collectives=[of_two, CollectiveTimes("all_reduce", 8, "here", points)]))
    for num_bytes, us in ((10, 10), (2000, 20), (6000, 60)):
        row = CollectiveRow("all_reduce", "backward")
        predictor.add_collective(num_bytes, 7, row)
        assert row.predicted_s == pytest.approx(us / 1e6)
    unknown = CollectiveRow("broadcast", "backward")
    predictor.add_collective(10, 8, unknown)
    assert unknown.predicted_s is None


@pytest.mark.parametrize("target", list(DEVICES))
def test_every_listed_gpu_has_times(target: str) -> None:
    row = predicted(known(predictor_of(target)), call(side=2048))
    device = DEVICES[target]
    moving = 12 * 2048**2 / (1e9 * device.bandwidth_gb_per_s)
    computing = 2 * 2048**3 / (1e12 * device.fp32_tflops)
    assert 0.9 < row.predicted_s / max(moving, computing) < 6


def test_without_a_target_nothing_is_predicted() -> None:
    assert predictor_of("none") is None
