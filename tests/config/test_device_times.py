"""Tables of times: those that come with dpprof can be read, and a bad file is named."""

import copy
import itertools
import json
import math
import re
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import refusal
from example_times import GOOD

from dpprof.config import device_times
from dpprof.config.device_times import ANY_GPU, DeviceTimes
from dpprof.config.devices import DEVICES
from dpprof.config.estimating import EstimatingConfig
from dpprof.config.experiment import ExperimentConfig
from dpprof.config.flat import from_flat, parse_experiment, to_flat
from dpprof.errors import DpprofError
from dpprof.measure.passes.operator_call import OperatorCall
from dpprof.measure.passes.predictor import Predictor
from dpprof.record.figures.capacity import capacity_bytes, device_of
from dpprof.record.ledger import TrafficRow
from dpprof.vocabulary.units import GIB

(OPERATOR,) = GOOD["operators"]
FALLING = {"name": "all_reduce", "ranks": 2, "source": "s", "points": [[16, 1.0], [8, 2.0]]}
WHOLE: dict[str, Any] = GOOD | {
    "collectives": [FALLING | {"points": [[8, 1.0], [16, 2.0]]}],
    "launch_us": 1.0,
    "issue_us": 2.0,
    "ranks": 1,
    "versions": {"torch": "2.13"},
    "others_pct": 0.5,
    "processors": 2,
    "threads": 1,
    "rounds": 2,
}
ABSENT = "(absent)"


def written(folder: Path, **changes: Any) -> Path:
    path = folder / "times é.json"
    path.write_text(json.dumps(GOOD | changes))
    return path


def resolved(**settings: object) -> ExperimentConfig:
    """An estimate where there is CUDA."""
    return parse_experiment(settings, EstimatingConfig).resolve(cuda_available=True)


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


def test_a_file_is_read_once_while_it_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not another one of that name, nor what it was before."""
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        path = written(Path(), gpu=name)
        assert DeviceTimes.read(path).gpu == name
        assert DeviceTimes.read(path) is DeviceTimes.read(path)
    written(Path(), gpu="a third")
    assert DeviceTimes.read(path).gpu == "a third"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"schema": 0}, "its schema is 0, and this dpprof reads 1: calibrate again"),
        ({"operators": [{"kind": "elementwise"}]}, "missing"),
        ({"colour": 1}, "'colour' is not known"),
        ({"gb_per_s": 0}, "gb_per_s is '0', and must be a number above 0"),
        ({"issue_us": -50}, "issue_us is '-50', and must be a number of at least 0"),
        ({"launch_us": math.nan}, "launch_us is 'nan', and must be a finite number"),
        ({"gpu": None}, "gpu is 'None', and must be a text"),
        ({"collectives": [FALLING]}, "collectives[0].points[1][0] is '8', and must be a number above 16"),
        ({"tflops": {}}, "float32"),
        ({"operators": [OPERATOR | {"points": [[8, 8, 0, 0]]}]}, "operators[0].points[0][3] is '0'"),
        ({"operators": "none"}, "operators is 'none', and must be a list"),
    ],
)
def test_a_bad_table_is_refused_with_its_name(tmp_path: Path, changes: dict[str, Any], why: str) -> None:
    path = written(tmp_path, **changes)
    said = f"{path} is no table of times: "
    with pytest.raises(DpprofError, match=re.escape(said)) as caught:
        DeviceTimes.read(path)
    assert why in str(caught.value)
    assert refusal(EstimatingConfig(target=str(path)).read_times) == f"target: {caught.value}"


def test_what_is_no_table_at_all_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "times.json"
    for text in ("", "[]", "{", "null"):
        path.write_text(text)
        with pytest.raises(DpprofError, match="is no table of times"):
            DeviceTimes.read(path)


def test_a_file_says_what_device_it_is_for(tmp_path: Path) -> None:
    path = str(written(tmp_path))
    assert resolved(target=path).device == "cpu"
    assert refusal(resolved, target=path, device="cuda").startswith("target")
    assert "a file of dpprof calibrate" in refusal(resolved, target="no such file")


def test_a_table_of_ranks_that_share_a_processor_is_for_as_many(tmp_path: Path) -> None:
    path = str(written(tmp_path, ranks=2))
    two = {"target": path, "parallel": "ddp", "world_size": 2}
    assert resolved(**two).device == "cpu"
    for settings, wanted in (({"target": path}, 1), (two | {"world_size": 4}, 4)):
        assert refusal(resolved, **settings).endswith(f"a file of dpprof calibrate --world-size {wanted}")


def test_an_estimate_whose_file_is_gone_can_still_be_read(tmp_path: Path) -> None:
    path = written(tmp_path)
    found = resolved(target=str(path))
    path.unlink()
    read = from_flat(to_flat(found))
    assert read == found
    assert len(found.estimating.times_sha256) == 64
    assert device_of(read) is None


def test_an_estimate_keeps_what_its_file_was_for(tmp_path: Path) -> None:
    """Whatever file of that name lies where it is read."""
    path = written(tmp_path, gpu="NVIDIA H100 80GB HBM3", device="cuda")
    found = resolved(target=str(path))
    for later in (json.dumps(GOOD | {"gpu": "Tesla T4", "device": "cuda"}), "{", None):
        path.unlink() if later is None else path.write_text(later)
        read = from_flat(to_flat(found))
        assert device_of(read) == DEVICES["H100"]
        assert capacity_bytes(read) == round(DEVICES["H100"].memory_gib * GIB)


BAD: tuple[Any, ...] = (-1, 0, math.nan, math.inf, None, "a text", [], ABSENT)


def places_in(data: Any, keys: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The keys of everything in JSON data."""
    pairs = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in pairs:
        yield (*keys, key)
        yield from places_in(value, (*keys, key))


def changed(keys: tuple[Any, ...], value: object, *, is_key: bool) -> dict[str, Any]:
    """A copy of a whole table with another value, or another key, in one place."""
    data: dict[str, Any] = copy.deepcopy(WHOLE)
    place: Any = data
    for key in keys[:-1]:
        place = place[key]
    if is_key:
        place[str(value)] = place.pop(keys[-1])
    elif value == ABSENT:
        del place[keys[-1]]
    else:
        place[keys[-1]] = value
    return data


def test_no_damaged_value_of_a_table_gets_through(tmp_path: Path) -> None:
    """Each number, text, list and object in turn. What is accepted predicts a time as any table does."""
    call = OperatorCall("aten::add", "float32", ((2,), (2,)), True, 24, 0)
    accepted: list[tuple[tuple[Any, ...], object]] = []
    said: list[str] = []
    for keys, value in itertools.product(places_in(WHOLE), BAD):
        path = tmp_path / f"{len(accepted)}_{keys}_{value}.json"
        path.write_text(json.dumps(changed(keys, value, is_key=False)))
        try:
            found = DeviceTimes.read(path)
        except DpprofError as refused:
            said.append(str(refused).partition(f"{path} is no table of times: ")[2])
            continue
        accepted.append((keys, value))
        row = TrafficRow("aten::add", "elementwise", "forward", 1, 16, 8, 0)
        predictor = Predictor(found)
        predictor.clock.operator("forward", torch.ops.aten.add.Tensor, ())
        predictor.add(call, row)
        assert 0 < row.least_s <= row.predicted_s <= row.most_s < math.inf, (keys, value)
        assert 0 < predictor.clock.end()["forward"].most_s < math.inf, (keys, value)
    assert all(said)
    optional = {"launch_us", "issue_us", "others_pct", "spread", "versions", "collectives", "ranks"}
    optional |= {"processors", "threads", "rounds"}
    for keys, value in accepted:
        is_size = "points" in keys and value == 0
        is_text = isinstance(value, str) and keys[-1] in ("gpu", "source", "torch")
        is_shorter = value == ABSENT and isinstance(keys[-1], int)
        is_optional = keys[0] == "versions" or keys[-1] in optional
        assert is_text or is_size or is_shorter or is_optional, (keys, value)


def test_no_other_key_of_a_table_gets_through(tmp_path: Path) -> None:
    for number, keys in enumerate(places_in(WHOLE)):
        if isinstance(keys[-1], str) and keys[0] != "versions":
            path = tmp_path / f"{number}.json"
            path.write_text(json.dumps(changed(keys, "colour", is_key=True)))
            with pytest.raises(DpprofError, match=r"is no table of times: .*(colour|missing|float32|schema)"):
                DeviceTimes.read(path)
