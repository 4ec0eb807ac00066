import pytest

from dpprof.config.devices import CPU_BALANCE, DEVICES, GPU_BALANCE, balance_of


def test_a_device_is_known_by_the_name_that_torch_has_for_it() -> None:
    for target, gpu in {
        "H200": "NVIDIA H200",
        "H100": "NVIDIA H100 80GB HBM3",
        "A100-80GB": "NVIDIA A100-SXM4-80GB",
        "A100-40GB": "NVIDIA A100-PCIE-40GB",
        "V100-32GB": "Tesla V100-SXM2-32GB",
        "T4": "Tesla T4",
        "RTX-4090": "NVIDIA GeForce RTX 4090",
    }.items():
        assert [name for name, device in DEVICES.items() if device.is_named(gpu)] == [target]

    others = ["", "NVIDIA H100 PCIe", "NVIDIA H100 80GB HBM3 MIG 1g.10gb", "Tesla V100-PCIE-16GB"]
    for gpu in [*others, "NVIDIA GeForce RTX 4090 Laptop GPU"]:
        assert not any(device.is_named(gpu) for device in DEVICES.values())


def test_an_estimate_and_a_run_on_its_device_have_the_same_balance() -> None:
    on_h100 = balance_of("cuda", "", "H100")
    assert balance_of("cuda", "NVIDIA H100 80GB HBM3") == on_h100
    assert on_h100.fp32 == pytest.approx(67 / 3.35)
    assert on_h100.cache_bytes == 50 * 2**20
    assert balance_of("cuda", "NVIDIA GeForce RTX 3060") == balance_of("cuda", "") == GPU_BALANCE
    assert balance_of("cpu", "") == CPU_BALANCE
