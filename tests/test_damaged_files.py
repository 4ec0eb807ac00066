"""Damaged files in every command that reads them: a sentence with the file's name, and the rest done."""

import dataclasses
import json
import shutil
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import example_counters
import example_ledger
import pytest
from conftest import call_dpprof, lay_out_store, runs_of
from damages import changed, damaged, read, value_at, wrongly_typed

from dpprof.config.budget import BudgetConfig
from dpprof.config.flat import to_flat
from dpprof.config.measuring import MeasuringConfig
from dpprof.config.training import TrainingConfig
from dpprof.errors import DpprofError
from dpprof.findings.comparison.comparison import Comparison, compare
from dpprof.json_files import typed
from dpprof.record.figures.results import read_result
from dpprof.record.folder import RunFolder, SweepFolder, SweepState
from dpprof.record.ledger import StepTimeline
from dpprof.record.link import Link
from dpprof.record.record import (
    Ceilings,
    Failure,
    FailureKind,
    GradientCheck,
    Memory,
    OperatorRow,
    Pace,
    Record,
    VerifyCheck,
    VerifyResult,
)
from dpprof.vocabulary.settings import fields

# Of how many damages one is tried with the commands.
EACH = 25
GRID = Path(__file__).parent / "written_by_0_3" / "grid"
STANDARD, GHOST = sorted((path.name for path in GRID.iterdir() if path.is_dir()), reverse=True)


def run_folder(at: Path) -> RunFolder:
    """A run folder with all that a record may hold."""
    record = example_ledger.record(
        counters=example_counters.counters(),
        pace=Pace([0.5, 0.25], [0.1, 0.05]),
        ceilings=Ceilings(2e10, 1e11, "fp32"),
        gradient_check=GradientCheck(1e-16, 1e-7, computed_in="float32", dropout_off=True),
        verify=VerifyResult(
            [VerifyCheck("noise_steps", "pass", "no correlation", chance=0.5)], 2.5, 1.001, 8
        ),
        operators=[OperatorRow("aten::mm", "matrix_product", "forward", 3, 1e-3, None, 64)],
        traced_steps=1,
        started_at=1.5,
        ended_at=2.5,
        samples_per_step=2,
        nonfinite_losses=0,
        warnings=["a warning"],
    )
    return example_ledger.folder(at, record, example_ledger.timeline())


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, str]:
    """The runs of a sweep folder, a sound one and many damaged: what is told of each; empty if nothing."""
    sweep = SweepFolder(tmp_path_factory.mktemp("damaged") / "odd")
    base = run_folder(sweep.run("sound").path)
    told = {base.path: ""}
    for path in (base.record, base.config, base.ledger):
        for number, (_, content) in enumerate(islice(damaged(path), 0, None, EACH)):
            run = sweep.run(f"{path.name}-{number}")
            shutil.copytree(base.path, run.path)
            (run.path / path.name).write_bytes(content)
            try:
                read_result(run)
                told[run.path] = ""
            except DpprofError:
                told[run.path] = f"{run.name}/{path.name} cannot be read: "
    assert len(told) - 10 > sum(map(bool, told.values())) > 30
    return told


def kinds(at: Path) -> Iterator[tuple[Path, Callable[[Any], Any]]]:
    """Every file that is read into a class, with what reads it."""
    base = run_folder(at)
    yield base.record, Record.from_data
    base.write_error(Failure(FailureKind.OOM, "no memory", "Traceback", Memory(peak_allocated=8), at=1.5))
    yield base.error, lambda data: typed(Failure, data)
    exported = at / "exported.json"
    exported.write_text(compare("x", {"x": [read_result(base)]}).to_json())
    yield exported, Comparison.from_data
    timeline = at / "timeline.json"
    timeline.write_text(json.dumps(read(base.ledger)["timeline"]))
    yield timeline, StepTimeline.from_dict
    dataclasses.replace(Link.new("sqlite:///x.db"), run_id="0123").write(base.mlflow)
    yield base.mlflow, lambda data: typed(Link, data)


@pytest.mark.parametrize("number", range(5))
def test_a_value_is_refused_or_kept_as_it_is(tmp_path: Path, number: int) -> None:
    """Every field, with a value of every other type. Nothing is taken for what it is not."""
    path, make = list(kinds(tmp_path / "run"))[number]
    data, num_refused, num_kept = read(path), 0, 0
    for keys, other in wrongly_typed(data):
        if not keys or keys[0] in ("storages", "schema_version") or "settings" in keys:
            continue  # kept in another form, filled up with defaults, or not kept
        try:
            made = make(changed(data, keys, other))
        except DpprofError:
            num_refused += 1
            continue
        kept = value_at(json.loads(json.dumps(dataclasses.asdict(made))), keys)
        assert (kept, isinstance(kept, bool)) == (other, isinstance(other, bool)), keys
        num_kept += 1
    assert num_refused > 2 * num_kept > 0


def test_every_damaged_configuration_is_refused_or_has_the_value(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run")
    data = read(folder.config)
    for (name, *_), other in ((keys, other) for keys, other in wrongly_typed(data) if keys):
        folder.config.write_text(json.dumps(data | {name: other}))
        refusal = ""
        try:
            flat = to_flat(folder.read_config())
        except DpprofError as error:
            refusal = str(error)
        if refusal:
            assert refusal.startswith(f"{folder.config} cannot be read: ")
            assert str(name) in refusal
        elif name in fields(TrainingConfig) | fields(MeasuringConfig) | fields(BudgetConfig):
            assert flat[str(name)] in (other, str(other))


@pytest.mark.parametrize("name", ["record.json", "config.json", "error.json", "ledger.json.gz", "sweep.json"])
def test_a_file_that_was_cut_is_named(tmp_path: Path, name: str) -> None:
    sweep = SweepFolder(tmp_path)
    run = run_folder(sweep.run("run").path)
    run.write_error(Failure(FailureKind.OOM, "no memory"))
    sweep.write_state(SweepState("sweep", ["run"]))
    path = sweep.state if name == "sweep.json" else run.path / name
    for word, content in islice(damaged(path), 12 + ("record" in name)):
        path.write_bytes(content)
        with pytest.raises(DpprofError) as refused:
            [sweep.read_state(), read_result(run), run.read_timeline()]
        assert str(refused.value).startswith(f"{path} cannot be read: "), word
        assert len(str(refused.value)) < len(str(path)) + 200


@pytest.mark.parametrize(
    "command",
    [
        ["summarize", "odd"],
        ["compare", "odd", "--output", "page.html"],
        ["roofline", "odd", "--output", "roof.html"],
        ["export", "odd", "--format", "json"],
    ],
    ids=lambda command: command[0],
)
def test_a_command_names_what_is_damaged_and_does_the_rest(odd: dict[Path, str], command: list[str]) -> None:
    place = next(iter(odd)).parent
    ended = call_dpprof(place.parent, *command)
    assert ended.returncode == 0, ended.stderr
    lines = [f"warning: left out {run.name}: odd/{told}" for run, told in odd.items() if told]
    said = ended.stderr.replace(str(place), "odd")
    assert [line for line in lines if line not in said] == []
    assert said.count("left out") == len(lines)
    if command[0] == "export":
        cells = json.loads(ended.stdout)["cells"]
        readable = {run.name for run, told in odd.items() if not told}
        assert {run["name"] for cell in cells for run in cell["runs"]} == readable


def test_show_tells_a_run_or_the_file_that_is_damaged(odd: dict[Path, str]) -> None:
    for run, told in sorted(odd.items())[::4]:
        ended = call_dpprof(run.parent, "show", run.name)
        assert ended.returncode in (0, 1, 2)
        if ended.returncode == 1:
            assert f"dpprof: {told or f'{run.name}/ledger.json.gz cannot be read: '}" in ended.stderr
            assert ended.stderr.count("\n") == 1
        else:
            assert not told


def test_a_damaged_estimate_of_a_larger_model_is_named(tmp_path: Path) -> None:
    lay_out_store(tmp_path)
    sweep = SweepFolder(tmp_path / "grid")
    shutil.copytree(GRID, sweep.path)
    for run in (STANDARD, GHOST):
        shutil.copytree(GRID / run, sweep.foreseen.run(run).path)
    path = sweep.foreseen.run(GHOST).record
    path.write_text("[]")
    commands = [["summarize"], ["compare"], ["export", "--format", "markdown"], ["log"]]
    for command in commands:
        ended = call_dpprof(tmp_path, *command, str(sweep.path))
        assert ended.returncode == 0, ended.stderr
        told = "".join((ended.stdout + ended.stderr).split())
        assert told.count(f"warning:leftout{GHOST}:{path}cannotberead:") == 1, command


def test_log_names_what_is_damaged_and_logs_the_rest(tmp_path: Path) -> None:
    lay_out_store(tmp_path)
    grid = tmp_path / "runs" / "grid"
    shutil.copytree(GRID, grid)
    (grid / GHOST / "record.json").write_text('{"schema_version": 3}')
    (grid / STANDARD / "ledger.json.gz").write_bytes(b"half")
    (grid / STANDARD / "mlflow.json").write_text('["a link"]')
    (grid / "sweep.json").write_text('{"kind": 5}')
    ended = call_dpprof(tmp_path, "log", str(grid))
    assert ended.returncode == 1
    told = "".join(ended.stdout.split())
    for file, why in (
        (f"{GHOST}/record.json", "it has schema version 3, this dpprof reads 2"),
        (f"{STANDARD}/ledger.json.gz", "it is no valid gzip"),
        (f"{STANDARD}/mlflow.json", "it should be an object; the folder counts as not logged"),
        ("sweep.json", "kind should be a valid string; it is now sweep.json.damaged"),
    ):
        assert "".join(f"{grid}/{file} cannot be read: {why}".split()) in told
    assert "dpprof: not logged, since it cannot be read" in ended.stderr
    found = runs_of(tmp_path)
    assert set(found) == {"grid", STANDARD}
    assert found[STANDARD].info.status == "FINISHED"
    (grid / STANDARD / "mlflow.json").write_text("[" * 100_000)
    alone = call_dpprof(tmp_path, "log", str(grid / GHOST), str(grid / STANDARD))
    assert alone.returncode == 1
    assert f"{grid / STANDARD} is run " in alone.stdout
    assert "nested too deeply; the folder counts as not logged" in " ".join(alone.stdout.split())
