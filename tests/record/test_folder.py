import dataclasses
import json
import os
import threading
from pathlib import Path

import example_ledger
import pytest

from dpprof.config.experiment import ExperimentConfig
from dpprof.record.files import write_text
from dpprof.record.folder import Artifacts, RunFolder, SweepFolder, SweepState
from dpprof.record.record import Failure, FailureKind, Memory, PassOutcome, PassStatus, Record

CONFIG = ExperimentConfig(trainer="DPSGDTrainer", lr=0.1, batch_size=3)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_failed_write_leaves_no_part_behind(tmp_path: Path) -> None:
    (tmp_path / "folder" / "inner").mkdir(parents=True)
    with pytest.raises(OSError, match="directory"):
        write_text(tmp_path / "folder", "text")
    assert names(tmp_path) == ["folder"]


def test_a_reader_never_sees_half_a_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    texts = ["a" * 500_000, "b" * 400_000]
    write_text(path, texts[0])
    seen = set()

    def write_all() -> None:
        for text in texts * 50:
            write_text(path, text)

    writing = threading.Thread(target=write_all)
    writing.start()
    while writing.is_alive():
        seen.add(path.read_text())
    writing.join()
    assert seen
    assert seen <= set(texts)


@pytest.mark.parametrize("name", ["with blanks ", "größe ☃ '模\"型.part y"])
def test_what_a_run_folder_is_given_it_gives_back(tmp_path: Path, name: str) -> None:
    folder = RunFolder(tmp_path / name)
    record = Record({"lr": 0.1}, {"cpu": "größer"}, passes={"clean": PassOutcome(PassStatus.FINISHED)})
    failure = Failure(FailureKind.OOM, "größer", "Traceback", Memory(peak_rss=5))
    folder.create(CONFIG)
    assert (folder.read_record(), folder.read_error(), folder.read_timeline()) == (None, None, None)
    folder.write_record(record)
    folder.write_error(failure)
    folder.write_ledger(example_ledger.ledger(), example_ledger.timeline())

    again = RunFolder(str(tmp_path / name))
    assert again.name == name
    assert again.read_config() == CONFIG
    assert again.read_record() == record
    assert again.read_error() == failure
    assert again.read_timeline() == example_ledger.timeline()


def test_create_clears_what_an_earlier_try_left(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.create(CONFIG)
    folder.write_record(Record({}, {}))
    (folder.tensorboard / "old.pt.trace.json.gz").write_text("old")
    other = dataclasses.replace(CONFIG, batch_size=8)
    folder.create(other)
    assert names(folder.path) == ["config.json", "tensorboard"]
    assert names(folder.tensorboard) == []
    assert folder.read_config() == other


def test_a_configuration_may_lack_settings_and_its_text_file(tmp_path: Path) -> None:
    folder, gone = RunFolder(tmp_path), str(tmp_path / "gone.txt")
    folder.config.write_text(json.dumps({"trainer": "flat", "lr": 1, "data": gone}))
    assert folder.read_config() == ExperimentConfig(trainer="DPSGDTrainer", lr=1.0, data=gone)


def test_artifacts_are_finished_regular_files_with_names_that_can_be_uploaded(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.create(CONFIG)
    folder.mlflow.write_text("{}")
    folder.path.joinpath(".record.json.part").write_text("half")
    (folder.tensorboard / "events").write_text("x")
    (folder.path / "link").symlink_to(folder.config)
    (folder.tensorboard / "home").symlink_to(tmp_path)
    os.mkfifo(folder.tensorboard / "pipe")
    (folder.path / "..up").mkdir()
    (folder.path / "..up" / "file").write_text("x")
    (folder.path / os.fsdecode(b"\xff")).write_text("x")
    special = ("link", "tensorboard/home", "tensorboard/pipe")
    unreadable = [f"{name} (not a readable file)" for name in special]
    assert folder.artifacts() == Artifacts(
        [folder.config, folder.tensorboard / "events"],
        ["..up/file (an odd name)", *unreadable, "\\udcff (an odd name)"],
    )


def test_a_sweep_folder_lists_its_run_folders_by_name(tmp_path: Path) -> None:
    sweep = SweepFolder(tmp_path / "my sweep")
    assert sweep.runs() == []
    assert sweep.name == "my sweep"
    for name in ("b", "a ☃", "c"):
        sweep.run(name).create(CONFIG)
    sweep.run("no configuration").path.mkdir()
    sweep.summary_markdown.write_text("# a file")
    assert [run.name for run in sweep.runs()] == ["a ☃", "b", "c"]
    assert sweep.runs()[1].path == sweep.run("b").path


def test_the_state_of_a_sweep(tmp_path: Path) -> None:
    sweep = SweepFolder(tmp_path / "new" / "sweep")
    assert sweep.read_state() == SweepState("sweep", [])
    state = SweepState("test", ["a", "b"])
    sweep.write_state(state)
    assert json.loads(sweep.state.read_text()) == dataclasses.asdict(state)
    assert SweepFolder(sweep.path).read_state() == state
