import pytest

from dpprof.config.devices import DEVICES


@pytest.mark.parametrize(
    ("target", "gpu"),
    [
        ("H200", "NVIDIA H200"),
        ("H100", "NVIDIA H100 80GB HBM3"),
        ("A100-80GB", "NVIDIA A100-SXM4-80GB"),
        ("A100-40GB", "NVIDIA A100-PCIE-40GB"),
        ("A100-40GB", "A100-SXM4-40GB"),
        ("V100-32GB", "Tesla V100-SXM2-32GB"),
        ("T4", "Tesla T4"),
        ("L4", "NVIDIA L4"),
        ("RTX-4090", "NVIDIA GeForce RTX 4090"),
    ],
)
def test_a_device_is_known_by_the_name_that_torch_has_for_it(target: str, gpu: str) -> None:
    assert [name for name, device in DEVICES.items() if device.is_named(gpu)] == [target]


@pytest.mark.parametrize(
    "gpu",
    [
        "",
        "NVIDIA H100 PCIe",
        "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
        "NVIDIA GH200 480GB",
        "NVIDIA A100 80GB PCIe",
        "Tesla V100-SXM2-16GB",
        "NVIDIA T400 4GB",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA GeForce RTX 3060",
    ],
)
def test_others_are_none_of_the_table(gpu: str) -> None:
    assert not any(device.is_named(gpu) for device in DEVICES.values())
