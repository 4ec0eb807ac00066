"""`dpprof plan`, and `--plan` of profile, verify and advise, beside a sweep that was measured here."""

import json
import shutil
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
from conftest import Ended, call_dpprof, errors_of, fine, lay_out_store, measure_here, runs_of
from covering import product
from example_plans import of_every_trainer
from example_runs import known
from mlflow import MlflowClient

from dpprof.record.figures.results import Result, read_result
from dpprof.record.folder import RunFolder, SweepFolder

MODEL = ("--model-size", "tiny", "--num-layers", "1", "--seq-len", "16", "--device", "cpu")
# Estimates for CUDA try no operators on this machine, which takes half of the time.
ON_CUDA = ("--device", "cuda", "--trainers", "bk", "--device-memory-gib")
BUDGET = ("--dataset-size", "20000", "--logical-batches", "64,256", "--trainers", "flat,bk")
SHORT = ("--passes", "clean,memory,ledger", "--warmup-steps", "1", "--measured-steps", "3")
PLAN = (*MODEL, *BUDGET, "--device-memory-gib", "0.0042", "--workers", "1")


@cache
def place() -> Path:
    """A folder with a sweep that was measured."""
    folder = Path(mkdtemp())
    lay_out_store(folder)
    sizes = ("--model-sizes", "tiny", "--num-layers", "1", "--seq-lens", "16", "--batch-sizes", "2,4")
    short = ("--trainers", "flat,bk", "--passes", "clean", "--measured-steps", "3", "--sweep-name", "mine")
    fine(measure_here(folder, "sweep", *sizes, *short, "--device", "cpu"))
    return folder


@cache
def made(command: str, *arguments: str, code: int = 0) -> tuple[Ended, Path]:
    """What a command gave beside the sweep, and its folder."""
    before = set(place().glob("runs/*"))
    ended = measure_here(place(), command, *arguments)
    assert ended.returncode == code, ended.stdout + ended.stderr
    (folder,) = set(place().glob("runs/*")) - before
    return ended, folder


def planned(*more: str, code: int = 0) -> tuple[Ended, Path, dict[str, Any]]:
    ended, folder = made("plan", *PLAN, *more, code=code)
    return ended, folder, json.loads((folder / "plan.json").read_text())


def result_in(folder: Path) -> Result:
    """That of a campaign of one run."""
    (run,) = (path for path in folder.iterdir() if path.is_dir())
    return read_result(RunFolder(run))


def test_a_plan_has_a_row_for_each_trainer_and_batch_and_recommends_one() -> None:
    ended, folder, plan = planned()
    assert [(row["logical_batch"], row["trainer"]) for row in plan["options"]] == [
        (batch, trainer) for batch in (64, 256) for trainer in ("DPSGDTrainer", "DPBookKeepingTrainer")
    ]
    assert "Recommended" in ended.stdout
    assert plan["recommended"]["trainer"] in ("DPSGDTrainer", "DPBookKeepingTrainer")
    assert {row["time_basis"] for row in plan["options"]} == {"measured"}
    assert (folder / "plan.html").read_text().count("<b>Recommended</b>") == 1
    assert (folder / "plan.md").read_text().startswith(f"# {folder.name}")
    run = runs_of(place())[folder.name]
    assert (run.info.status, run.data.tags["dpprof.kind"]) == ("FINISHED", "plan")
    assert run.data.params["target_epsilon"] == "8.0"


def test_every_figure_can_be_traced() -> None:
    _, folder, plan = planned()
    for trainer, paths in plan["estimates"].items():
        for path in paths:
            assert read_result(RunFolder(place() / path)).config.trainer == trainer
    for trainer, names in plan["measured"].items():
        assert all(trainer in name and name.startswith("mine/") for name in names)
    for row in plan["options"]:
        name = f"{row['trainer']}_tiny-layers1_bs{row['largest_physical_batch']}_seq16"
        figures = known(read_result(SweepFolder(folder).run(name)).figures)
        assert known(figures.estimate).fits


def test_a_second_plan_makes_no_estimate_again_and_searches_for_no_noise() -> None:
    first = planned()[2]
    with pytest.MonkeyPatch.context() as patch:
        patch.delattr("dpprof.privacy.accounting._noise_by_prv")
        _, folder, plan = planned("--price-per-device-hour", "2")
    assert plan["noises"] == first["noises"]
    assert not SweepFolder(folder).runs()
    assert plan["estimates"] == first["estimates"]
    for row in plan["options"]:
        assert row["cost_least"] == pytest.approx(2 * row["device_hours_least"])


@pytest.mark.exhaustive
def test_without_a_list_batches_double_while_the_largest_is_the_best() -> None:
    more = ("--dataset-size", "40000", "--logical-batches", "auto", "--steps", "20", "--min-steps", "20")
    plan = planned(*more)[2]
    batches = list(dict.fromkeys(row["logical_batch"] for row in plan["options"]))
    assert batches[:4] == [512, 1024, 2048, 4096]
    best = plan["recommended"]["logical_batch"]
    assert best < batches[-1] or best == 16384, "half of the data"
    assert batches[4:] == [8192, 16384][: len(batches) - 4]
    assert best >= 4096


def test_several_devices_leave_out_what_cannot_share() -> None:
    two = ("--num-devices", "2", "--parallel", "fsdp2", "--headroom", "0%")
    plan = planned(*ON_CUDA, "0.93", "--trainers", "flat,bk", *two)[2]
    assert {row["trainer"] for row in plan["options"]} == {"DPBookKeepingTrainer"}
    said = "flat is left out: it cannot share a model by fsdp2"
    assert any(text.startswith(said) for text in plan["caveats"])


def test_no_batch_is_tried_that_no_step_can_fill() -> None:
    """The largest draw in steps of 256 samples on average is below 384."""
    ended, folder, plan = planned(*ON_CUDA, "1000")
    tried = {run.read_config().batch_size for run in SweepFolder(folder).runs()}
    (largest,) = {row["largest_physical_batch"] for row in plan["options"]}
    assert 256 < largest <= max(tried) <= 384
    assert all(row["is_at_least"] for row in plan["options"])
    assert f"{largest} or more" in ended.stdout
    assert "the search stopped" not in ended.stdout + ended.stderr


def test_where_nothing_fits_the_plan_says_so() -> None:
    ended, folder, plan = planned(*ON_CUDA, "0.5", code=3)
    assert "No trainer's step fits" in ended.stderr
    assert "none fits" in ended.stdout
    assert plan["advice"].startswith("It does not fit")
    told = plan["advice"].partition("`")[0].strip()
    assert told in (folder / "plan.html").read_text().replace("&#39;", "'")
    assert json.loads((folder / "advice.json").read_text())["answer"] == plan["advice"]


def test_runs_that_only_mlflow_has_give_times(tmp_path: Path) -> None:
    fine(measure_here(place(), "plan", *PLAN, "--trainers", "bk", "--runs-dir", str(tmp_path)))
    (file,) = tmp_path.glob("plan-*/plan.json")
    plan = json.loads(file.read_text())
    assert {row["time_basis"] for row in plan["options"]} == {"measured"}
    bk = "DPBookKeepingTrainer"
    assert plan["measured"] == {bk: planned()[2]["measured"][bk]}


def test_a_plan_can_be_logged_elsewhere(tmp_path: Path) -> None:
    """As it is told to, where MLflow did not answer: with its answer, not as a sweep."""
    _, folder, plan = planned()
    copy = shutil.copytree(folder, tmp_path / "runs" / folder.name)
    lay_out_store(tmp_path)
    fine(call_dpprof(tmp_path, "log", f"runs/{folder.name}"))
    (parent,) = [run for run in runs_of(tmp_path).values() if run.data.tags["dpprof.kind"] == "plan"]
    assert parent.data.tags["mlflow.note.content"].startswith(f"# {folder.name}")
    assert parent.info.status == "FINISHED"
    artifacts = {path.name for path in Path(parent.info.artifact_uri).iterdir()}
    assert artifacts >= {"plan.html", "plan.md", "plan.json"}
    assert json.loads((copy / "plan.json").read_text()) == plan
    assert not (copy / "comparison.html").exists()
    children = [run for run in runs_of(tmp_path).values() if run.data.tags["dpprof.kind"] == "estimate"]
    assert len(children) == len([run for run in SweepFolder(folder).runs() if run.mlflow.exists()])


def recommended() -> dict[str, Any]:
    row: dict[str, Any] = planned()[2]["recommended"]
    return row


def profiled(*more: str) -> tuple[Ended, Result]:
    ended, folder = made("profile", "--plan", str(planned()[1]), *SHORT, *more)
    return ended, result_in(folder)


def test_the_recommended_row_is_what_is_measured_and_its_peak_is_the_plans_to_the_byte() -> None:
    _, result = profiled()
    row = recommended()
    assert result.config.trainer == row["trainer"]
    assert result.config.batch_size == row["physical_batch"]
    assert result.config.accumulation_steps == max(1, round(row["physical_batches"]))
    assert result.config.noise_multiplier == row["noise_multiplier"]
    assert result.config.accumulation_steps > 2  # more than were estimated
    assert row["predicted"]["peak_bytes"] == known(result.record).memory.peak_allocated
    assert read_result(RunFolder(place() / row["predicted"]["estimate"])).config.is_estimate


def test_the_terminal_and_mlflow_have_both() -> None:
    ended, result = profiled()
    assert f"Beside {planned()[1].name}" in ended.stdout
    assert "+0 bytes" in ended.stdout
    run_id = json.loads(result.folder.mlflow.read_text())["run_id"]
    run = MlflowClient(f"sqlite:///{place()}/mlflow.db").get_run(run_id)
    predicted = recommended()["predicted"]
    assert run.data.metrics["plan/peak_mib"] == pytest.approx(predicted["peak_bytes"] / 2**20)
    assert run.data.metrics["plan/step_ms_least"] == pytest.approx(1e3 * predicted["step_s_least"])
    assert run.data.tags["dpprof.measured_for"] == planned()[1].name
    shown = call_dpprof(place(), "show", str(result.folder.path))
    assert f"Beside {planned()[1].name}" in shown.stdout


def test_what_differs_from_the_plan_is_measured_but_not_compared() -> None:
    """A default value that is given counts too."""
    ended, result = profiled("--batch-size", "3", "--trainer", "StandardTrainer", "--accumulation-steps", "1")
    assert (result.config.trainer, result.config.batch_size) == ("StandardTrainer", 3)
    assert result.predicted is None
    told = "".join((ended.stdout + ended.stderr).split())
    assert "notsetbesidetheplan:" in told
    assert "batch_sizeis3" in told
    assert "trainerisStandardTrainer" in told


def test_a_row_that_is_named_is_measured() -> None:
    (other,) = {row["trainer"] for row in planned()[2]["options"]} - {recommended()["trainer"]}
    named = ("--trainer", "flat" if other == "DPSGDTrainer" else "bk", "--logical-batch", "64")
    _, result = profiled(*named)
    row = next(r for r in planned()[2]["options"] if (r["trainer"], r["logical_batch"]) == (other, 64))
    assert (result.config.trainer, result.config.batch_size) == (other, row["physical_batch"])
    assert result.config.noise_multiplier == row["noise_multiplier"]
    assert known(result.predicted).step_s_least == row["predicted"]["step_s_least"]


def test_where_no_time_is_known_the_next_best_row_is_named() -> None:
    ended, folder, plan = planned("--measured", "none")
    assert plan["recommended"] is None
    row = plan["next_best"]
    assert (row["trainer"], row["logical_batch"]) == ("DPBookKeepingTrainer", 64), "it alone makes 200 steps"
    assert row["predicted"]["peak_bytes"] > 0
    command = f"dpprof profile --plan {folder.relative_to(place())} --trainer bk --logical-batch 64"
    assert command in (ended.stdout + ended.stderr).replace("\n", " ")
    refused = call_dpprof(place(), "profile", "--plan", str(folder))
    assert (refused.returncode, "The next best is bk at 64" in refused.stderr) == (2, True)


def test_a_plan_for_a_gpu_that_is_not_there_names_the_device_to_give() -> None:
    folder = planned(*ON_CUDA, "4", "--logical-batches", "64")[1]
    for command in (("profile", "--trainer", "bk"), ("verify", "--trainers", "bk")):
        refused = call_dpprof(place(), *command, "--plan", str(folder), CUDA_VISIBLE_DEVICES="")
        assert refused.returncode == 2
        assert "device: the plan is for CUDA" in refused.stderr
        assert "give --device cpu and a small step" in refused.stderr


def test_verify_takes_the_trainer_and_the_model() -> None:
    ended, folder = made("verify", "--plan", str(planned()[1] / "plan.json"))
    assert "verifying 1 trainer on cpu: tiny-layers1, 4 samples of 16 tokens" in ended.stdout + ended.stderr
    config, row = result_in(folder).config, recommended()
    assert (config.trainer, config.noise_multiplier) == (row["trainer"], row["noise_multiplier"])


def test_advise_takes_the_row_and_the_device() -> None:
    """With most changes made already, so that few are left to estimate."""
    changed = ("--activation-checkpointing", "true", "--precision", "bf16", "--loop", "lean")
    plan = ("--plan", str(planned()[1]), "--trainers", "bk", "--workers", "1")
    _, folder = made("advise", *plan, *changed)
    advice = json.loads((folder / "advice.json").read_text())
    assert advice["answer"].startswith("It fits 4.3 MiB")
    asked, row = advice["experiment"], recommended()
    assert (asked["trainer"], asked["batch_size"]) == (row["trainer"], row["physical_batch"])


def written(**changes: Any) -> str:
    """A plan's file with changes."""
    return json.dumps(of_every_trainer() | changes)


NO_PLANS = [
    (None, "plan: plan.json cannot be read: No such file"),
    ("{", "plan: plan.json cannot be read: it is no valid JSON"),
    ("[]", "plan: it is no plan that this dpprof can read: it is no object"),
    ('{"options": []}', "plan: it is no plan that this dpprof can read: name is missing"),
    (written(options=[]), "plan: it has no row"),
    (written(recommended=None), "plan: it recommends no row, as no time is known"),
    (written(experiments={"DPBookKeepingTrainer": {"trainer": "bk", "x": 1}}), "'x'"),
]


@pytest.mark.parametrize(("command", "case"), product(["profile", "verify", "advise"], NO_PLANS))
def test_what_is_no_plan_is_refused(command: str, case: tuple[str | None, str], tmp_path: Path) -> None:
    content, said = case
    lay_out_store(tmp_path)
    if content is not None:
        (tmp_path / "plan.json").write_text(content)
    assert said in errors_of(call_dpprof(tmp_path, command, "--plan", "plan.json", "--device", "cpu"))
