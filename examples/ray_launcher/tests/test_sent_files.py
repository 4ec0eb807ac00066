"""The files that travel: run folders, there and back, and the Python files of a workload."""

import io
import os
import tarfile
from pathlib import Path

import pytest
from ray_launcher import launcher
from ray_launcher.launcher import sources_of
from ray_launcher.on_node import pack, unpack

from dpprof.errors import ConfigError


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a module and what lies around it."""
    for name in (
        "mine.py",
        "beside.py",
        "package/__init__.py",
        "package/deep/er.py",
        "data.csv",
        ".hidden/a.py",
        "my-notes/b.py",
        "venv/pyvenv.cfg",
        "venv/lib/c.py",
        "__pycache__/d.py",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"# {name}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    return tmp_path


def names(data: bytes | None) -> list[str]:
    assert data is not None
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return sorted(archive.getnames())


def test_what_can_be_imported_beside_the_workloads_module(place: Path) -> None:
    every = ["beside.py", "mine.py", "package/__init__.py", "package/deep/er.py"]
    assert names(sources_of("mine:build")) == every
    assert names(sources_of("package.deep.er:build")) == every


def test_the_folder_on_pythonpath_in_which_it_is(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "elsewhere").mkdir()
    (place / "elsewhere" / "other.py").touch()
    monkeypatch.setenv("PYTHONPATH", f"/nowhere:{place / 'elsewhere'}")
    assert names(sources_of("other:build")) == ["other.py"]


@pytest.mark.parametrize(
    "workload", ["SimpleBigModel", "huggingface:gpt2", "torch.nn:Linear", "nowhere:build"]
)
def test_nothing_for_what_is_installed_or_unknown(workload: str, place: Path) -> None:
    assert sources_of(workload) is None


def test_too_much_is_refused(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "_MOST_BYTES", 1)
    with pytest.raises(ConfigError, match=f"the Python files in {place} and below are too many"):
        sources_of("mine:build")


def test_a_folder_arrives_as_it_was_but_for_what_is_no_file(tmp_path: Path) -> None:
    sent, got = tmp_path / "sent", tmp_path / "got"
    (sent / "ranks" / "1").mkdir(parents=True)
    (sent / "tensorboard").mkdir()
    (sent / "record.json").write_text("{}")
    (sent / ".lock").write_text("process 1 on the machine that drives")
    (sent / "ranks" / "1" / "run.log").write_bytes(bytes(range(256)))
    (sent / "link").symlink_to("/etc/passwd")
    (sent / "folder link").symlink_to("/etc")
    os.mkfifo(sent / "pipe")
    got.mkdir()
    (got / "record.json").write_text("of before")
    (got / "config.json").write_text("kept")
    unpack(pack(sent), got)
    found = sorted(path.relative_to(got).as_posix() for path in got.rglob("*"))
    assert found == ["config.json", "ranks", "ranks/1", "ranks/1/run.log", "record.json", "tensorboard"]
    assert (got / "record.json").read_text() == "{}"
    assert (got / "ranks" / "1" / "run.log").read_bytes() == bytes(range(256))


def test_a_part_of_one_is_sent_alone(tmp_path: Path) -> None:
    sent, got = tmp_path / "sent", tmp_path / "got"
    (sent / "ranks" / "2").mkdir(parents=True)
    (sent / "ranks" / "2" / "run.log").touch()
    (sent / "run.log").touch()
    got.mkdir()
    unpack(pack(sent, ["ranks/2", "ranks/3"]), got)
    assert [path.relative_to(got).as_posix() for path in got.rglob("*.log")] == ["ranks/2/run.log"]
