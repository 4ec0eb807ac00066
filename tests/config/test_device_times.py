"""Tables of times: those that come with dpprof can be read, and a bad file is named."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from dpprof.config import device_times
from dpprof.config.device_times import ANY_GPU, SCHEMA, DeviceTimes
from dpprof.config.estimating import EstimatingConfig
from dpprof.config.flat import parse_experiment
from dpprof.errors import ConfigError

GOOD: dict[str, Any] = {
    "schema": SCHEMA,
    "gpu": "a processor",
    "device": "cpu",
    "tflops": {"float32": 0.1},
    "gb_per_s": 10.0,
    "operators": [{"kind": "elementwise", "dtype": "float32", "source": "s", "points": [[8, 8, 0, 1.5]]}],
}


def written(folder: Path, **changes: Any) -> Path:
    path = folder / "times é.json"
    path.write_text(json.dumps(GOOD | changes))
    return path


@pytest.mark.parametrize("path", sorted(Path(device_times.__file__).with_name("times").glob("*.json")))
def test_every_table_that_comes_with_dpprof_names_its_sources(path: Path) -> None:
    found = DeviceTimes.read(path)
    assert all(each.source and each.points for each in found.operators)
    assert all(each.source and each.points for each in found.collectives)
    assert found.device == "cuda"


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    found = DeviceTimes.read(written(tmp_path))
    assert asdict(found)["operators"][0]["points"] == [[8, 8, 0, 1.5]]
    assert DeviceTimes.shipped(ANY_GPU) is not None
    assert DeviceTimes.shipped("no such GPU") is None


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"schema": 0}, "its schema is 0, and this dpprof reads 1: calibrate again"),
        ({"operators": [{"kind": "elementwise"}]}, "missing"),
        ({"colour": 1}, "unexpected keyword argument 'colour'"),
        ({"gb_per_s": 0}, "a rate or a time of 0"),
        ({"tflops": {}}, "float32"),
        ({"operators": [GOOD["operators"][0] | {"points": [[8, 8, 0, 0]]}]}, "a rate or a time of 0"),
        ({"operators": "none"}, "TypeError"),
    ],
)
def test_a_bad_table_is_refused_with_its_name(tmp_path: Path, changes: dict[str, Any], why: str) -> None:
    path = written(tmp_path, **changes)
    with pytest.raises(ConfigError, match=r"target: .*times é.json is no table of times") as caught:
        DeviceTimes.read(path)
    assert why in str(caught.value)


@pytest.mark.parametrize("text", ["", "[]", "{", "null"])
def test_what_is_no_table_at_all_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "times.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match="is no table of times"):
        DeviceTimes.read(path)


def test_a_file_says_what_device_it_is_for(tmp_path: Path) -> None:
    path = str(written(tmp_path))
    found = parse_experiment({"target": path}, EstimatingConfig).resolve(cuda_available=True)
    assert found.device == "cpu"
    with pytest.raises(ConfigError, match="target"):
        parse_experiment({"target": path, "device": "cuda"}, EstimatingConfig).resolve(cuda_available=True)
    with pytest.raises(ConfigError, match="a file of dpprof calibrate"):
        parse_experiment({"target": "no such file"}, EstimatingConfig).resolve(cuda_available=True)


def test_a_table_of_ranks_that_share_a_processor_is_for_as_many(tmp_path: Path) -> None:
    path = str(written(tmp_path, ranks=2))
    two = {"target": path, "parallel": "ddp", "world_size": 2}
    found = parse_experiment(two, EstimatingConfig).resolve(cuda_available=True)
    assert found.device == "cpu"
    for settings, wanted in (({"target": path}, 1), (two | {"world_size": 4}, 4)):
        with pytest.raises(ConfigError, match=f"a file of dpprof calibrate --world-size {wanted}$"):
            parse_experiment(settings, EstimatingConfig).resolve(cuda_available=True)


def test_an_estimate_whose_file_is_gone_can_still_be_read(tmp_path: Path) -> None:
    found = parse_experiment({"target": str(tmp_path / "gone.json"), "device": "cpu"}, EstimatingConfig)
    assert found.estimating.times is None
