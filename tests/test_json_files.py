"""What is no JSON of dpprof's is refused in a sentence, whatever it is."""

import gzip
import json
import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from dpprof.errors import DpprofError
from dpprof.json_files import LARGEST, naming, parse, read_json, typed
from dpprof.process import peak_rss_bytes


@dataclass
class Inner:
    number: int


@dataclass
class Outer:
    name: str
    share: float | None = None
    inner: dict[str, list[Inner]] = field(default_factory=dict)


def refusal(path: Path, largest: int = LARGEST) -> str:
    """What is said of a file, which is named first."""
    with pytest.raises(DpprofError) as refused:
        read_json(path, largest)
    name, _, why = str(refused.value).partition(" cannot be read: ")
    assert name == str(path)
    return why


def test_what_was_written_is_read_packed_or_not(tmp_path: Path) -> None:
    data = {"ä": [1, 2.5, None, True, "x"]}
    for name, pack in (("a.json", bytes), ("a.json.gz", gzip.compress)):
        (tmp_path / name).write_bytes(pack(json.dumps(data).encode()))
        assert read_json(tmp_path / name) == data


def test_a_small_file_that_unpacks_to_more_than_the_limit_is_refused(tmp_path: Path) -> None:
    bomb = tmp_path / "ledger.json.gz"
    bomb.write_bytes(gzip.compress(b"0" * 2**28, compresslevel=1))
    before = peak_rss_bytes()
    assert refusal(bomb, 2**23) == "it has more than 8 MiB"
    assert (peak_rss_bytes() or 0) - (before or 0) < 2**26


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "it is no valid JSON"),
        (b"\xff\xfe", "it is no valid JSON"),
        (b'{"a": 1', "it is no valid JSON"),
        (b"[" * 100_000, "its lists and objects are nested too deeply"),
        (b'{"a":' * 100_000, "its lists and objects are nested too deeply"),
        (b"1" * 31, "it is no valid JSON (a number of 31 digits)"),
    ],
)
def test_damage(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(content)
    assert refusal(path).startswith(why)


def test_damage_of_a_packed_file(tmp_path: Path) -> None:
    path = tmp_path / "a.json.gz"
    packed = gzip.compress(json.dumps(list(range(1000))).encode())
    for content in (packed[:-9], b"[]", packed[:-8] + b"12345678"):
        path.write_bytes(content)
        assert refusal(path).startswith("it is no valid gzip")


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert refusal(tmp_path / "pipe") == refusal(tmp_path) == "it is no regular file"
    assert refusal(tmp_path / "none") == "No such file or directory"


def test_plain_data_becomes_a_dataclass() -> None:
    data = {"name": "x", "share": 1, "inner": {"a": [{"number": 2}]}}
    assert typed(Outer, data) == Outer("x", 1.0, {"a": [Inner(2)]})


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ([], "it should be"),
        ({}, "name is missing"),
        ({"name": 5}, "name should be a valid string"),
        ({"name": "x", "share": "0.5"}, "share should be a valid number"),
        ({"name": "x", "inner": {"a": [{"number": 1.0}]}}, "inner.a.0.number should be a valid integer"),
        ({"name": "x", "inner": {"a": [{"number": True}]}}, "inner.a.0.number should be a valid integer"),
        ({"name": "x", "more": 1}, "more is unknown to this dpprof"),
        ({"name": "x", "inner": parse("[" * 400 + "]" * 400)}, "its lists and objects|it: Invalid JSON"),
    ],
)
def test_a_value_of_another_type_is_told_by_its_field(data: object, why: str) -> None:
    with pytest.raises(DpprofError, match=f"^{why}"):
        typed(Outer, data)


def test_what_is_wrong_with_a_content_is_told_with_its_file() -> None:
    with pytest.raises(DpprofError, match=r"^a/b cannot be read: a reason$"), naming(Path("a/b")):
        raise DpprofError("a reason")
