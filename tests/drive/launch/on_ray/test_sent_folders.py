"""Run folders on their way from one machine to another."""

import os
from pathlib import Path

from dpprof.drive.launch.on_ray.folders import pack, unpack


def test_a_folder_arrives_as_it_was_but_for_what_is_no_file(tmp_path: Path) -> None:
    sent, got = tmp_path / "sent", tmp_path / "got"
    (sent / "ranks" / "1").mkdir(parents=True)
    (sent / "tensorboard").mkdir()
    (sent / "record.json").write_text("{}")
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
