from example_roofline import CEILINGS, LEDGER, cell

from dpprof.reports.roofline.roofs import Ceiling, Given, Roof, roofs

HIGHER = {"ceilings/copy_gib_per_s": 40.0, "ceilings/matmul_tflop_per_s": 0.4}


def test_of_several_runs_the_highest_counts() -> None:
    found = roofs([cell(CEILINGS), cell(HIGHER, LEDGER, trainer="dpsgd")], Given())
    assert found == {
        ("a CPU", "fp32"): Roof(
            "a CPU", "fp32", Ceiling(40 * 2**30, 32 * 2**30, 2), Ceiling(0.5e12, 0.4e12, 2)
        )
    }


def test_ceilings_meet_at_the_ridge() -> None:
    (roof,) = roofs([cell(CEILINGS)], Given()).values()
    assert roof.ridge == 0.5e12 / (32 * 2**30)
    assert [roof.binds(x) for x in (1.0, 14.0, 15.0, None)] == ["copy", "copy", "matmul", None]


def test_precisions_share_their_devices_copy_and_nothing_else() -> None:
    found = roofs([cell(CEILINGS), cell(HIGHER, precision="bf16")], Given())
    one, other = found["a CPU", "fp32"], found["a CPU", "bf16"]
    assert one.copy == other.copy == Ceiling(40 * 2**30, 32 * 2**30, 2)
    assert (one.matmul, other.matmul) == (Ceiling(0.5e12, 0.5e12, 1), Ceiling(0.4e12, 0.4e12, 1))


def test_devices_share_nothing() -> None:
    gpu = cell(LEDGER, device="cuda", environment={"cpu": "a CPU", "gpu": "a GPU"})
    found = roofs([cell(CEILINGS), gpu], Given())
    assert list(found) == [("a CPU", "fp32"), ("a GPU", "fp32")]
    assert found["a GPU", "fp32"] == Roof("a GPU", "fp32", None, None)
    assert found["a GPU", "fp32"].binds(1.0) is None


def test_given_ceilings_count_before_measured_ones() -> None:
    (roof,) = roofs([cell(CEILINGS)], Given(matmul_flop_per_s=2e12)).values()
    assert roof.matmul == Ceiling(2e12, 2e12, 0)
    assert roof.matmul.is_given
    assert roof.copy == Ceiling(32 * 2**30, 32 * 2**30, 1)
    assert not roof.copy.is_given


def test_a_device_without_a_name_goes_by_its_kind() -> None:
    assert list(roofs([cell(CEILINGS, environment={})], Given())) == [("cpu", "fp32")]


def test_one_ceiling_alone_binds_nothing() -> None:
    (roof,) = roofs([cell(LEDGER)], Given(copy_bytes_per_s=1.0)).values()
    assert roof.ridge is None
    assert roof.binds(1.0) is None
