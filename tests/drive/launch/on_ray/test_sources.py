"""Which Python files go to the nodes with a workload."""

import io
import tarfile
from pathlib import Path

import pytest

from dpprof.drive.launch.on_ray import sources
from dpprof.drive.launch.on_ray.sources import sources_of
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


@pytest.mark.parametrize("limit", ["_MOST_FILES", "_MOST_BYTES", "_MOST_FOLDERS"])
def test_too_much_is_refused(limit: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, limit, 1)
    with pytest.raises(ConfigError, match=f"the Python files in {place} and below are to be sent"):
        sources_of("mine:build")
