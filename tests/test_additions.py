"""A new figure, trainer, report and finding: in few files each, and then everywhere.

Each is added to a copy of dpprof. Every file that takes is one more place that must agree: lower the numbers
when a change needs fewer.
"""

import csv
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import ROOT, artifacts_of, fine, lay_out_store, run_dpprof, runs_of

# How many files each takes.
MOST_FILES = {"figure": 1, "measurement": 3, "trainer": 2, "report": 1, "finding": 2}


@dataclass(frozen=True)
class Edit:
    """A text that comes after another one in a file of dpprof; the whole file, if that is empty."""

    file: str
    after: str
    text: str


ADDITIONS = {
    # From what runs keep: logged, exported, and a column of the comparison.
    "figure": [
        Edit(
            "record/figures/names.py",
            '    yield Metric("overhead/startup_s", record.startup_s)\n',
            '    yield Metric("overhead/timed_s", record.timed_s)\n',
        ),
        Edit(
            "record/figures/names.py",
            '    SAMPLES: Column("samples/s", has_ratio=False),\n',
            '    "overhead/timed_s": Column("timed", "s", has_ratio=False),\n',
        ),
    ],
    # Measured in the clean pass and kept, too; its ratio is another column.
    "measurement": [
        Edit(
            "measure/passes/clean.py",
            "    record.involuntary_switches = involuntary_switches() - switches\n",
            "    record.page_faults = __import__('resource').getrusage(0).ru_minflt\n",
        ),
        Edit(
            "record/record.py",
            "    involuntary_switches: int | None = None\n",
            "    page_faults: int | None = None\n",
        ),
        Edit(
            "record/figures/names.py",
            '    yield Metric("overhead/startup_s", record.startup_s)\n',
            '    yield Metric("overhead/page_faults", record.page_faults, compares=True)\n',
        ),
        Edit(
            "record/figures/names.py",
            '    SAMPLES: Column("samples/s", has_ratio=False),\n',
            '    "overhead/page_faults": Column("page faults"),\n',
        ),
    ],
    "trainer": [
        Edit(
            "measure/trainers/added.py",
            "",
            "from dpprof.measure.trainers.standard import StandardTrainer\n\n\n"
            "class AddedTrainer(StandardTrainer):\n"
            '    """Standard training by another name."""\n',
        ),
        Edit(
            "vocabulary/trainers.py",
            "BUILT_IN = (\n",
            "    TrainerInfo(\n"
            '        "AddedTrainer", "added", is_private=False, color="#123456", symbol="cross",\n'
            '        phases=("zero_grad", "forward", "backward", "optimizer_step"),\n'
            "        categories=OF_ANY_TRAINING,\n"
            '        target="dpprof.measure.trainers.added:AddedTrainer",\n'
            "    ),\n",
        ),
    ],
    "report": [
        Edit(
            "pages/reports/added.py",
            "",
            "from dpprof.pages.document import Document, Sentence\n"
            "from dpprof.pages.report import page_report\n\n\n"
            "def page(result):\n"
            '    return Document("Added", [Sentence(f"{len(result.record.step_s)} timed steps")])\n\n\n'
            'REPORTS = (page_report("added.html", 1, page),)\n',
        ),
    ],
    "finding": [
        Edit(
            "findings/verdict/verdict.py",
            "    return _known(\n        choose(comparison, fastest, best_at_each(calm, smallest_at)),\n",
            '        Finding.of("added", number=len(comparison.cells)),\n',
        ),
        Edit("findings/sentences.toml", "[topics]\n", 'added = "Added"\n'),
        Edit("findings/sentences.toml", "[sentences]\n", '"added" = "{number} cells were found."\n'),
    ],
}


@pytest.fixture(scope="module")
def added(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a sweep by the copy."""
    folder = tmp_path_factory.mktemp("added")
    copy = folder / "copy" / "dpprof"
    shutil.copytree(ROOT / "dpprof", copy, ignore=shutil.ignore_patterns("__pycache__"))
    for edit in [edit for edits in ADDITIONS.values() for edit in edits]:
        path = copy / edit.file
        text = path.read_text(encoding="utf-8") if edit.after else ""
        assert edit.after in text, f"{edit.file} has no line {edit.after.strip()}: change this test with it"
        path.write_text(text.replace(edit.after, edit.after + edit.text), encoding="utf-8")
    lay_out_store(folder)
    sizes = ["--model-sizes", "tiny", "--batch-sizes", "2", "--seq-lens", "8", "--trainers", "standard,added"]
    few = ["--device", "cpu", "--passes", "clean", "--measured-steps", "2", "--warmup-steps", "1"]
    where = ["--launcher", "in_process", "--sweep-name", "s"]
    fine(run_dpprof(folder, "sweep", *sizes, *few, *where, PYTHONPATH=str(copy.parent)))
    more = {"PYTHONPATH": str(copy.parent)}
    fine(run_dpprof(folder, "export", "runs/s", "--format", "csv", "--output", "s.csv", **more))
    return folder


@pytest.mark.parametrize("what", ADDITIONS)
def test_it_takes_few_files(what: str) -> None:
    files = {edit.file for edit in ADDITIONS[what]}
    assert len(files) == MOST_FILES[what]


def test_a_figure_is_logged_exported_and_shown(added: Path) -> None:
    assert runs_of(added)["AddedTrainer_tiny_bs2_seq8"].data.metrics["overhead/timed_s"] > 0
    with open(added / "s.csv", encoding="utf-8") as file:
        assert all(float(row["overhead/timed_s"]) > 0 for row in csv.DictReader(file))
    for name in ("summary.md", "comparison.html"):
        assert "timed [s]" in (added / "runs" / "s" / name).read_text(encoding="utf-8")


def test_a_measurement_is_logged_exported_compared_and_shown(added: Path) -> None:
    found = runs_of(added)
    standard, other = (found[f"{name}_tiny_bs2_seq8"] for name in ("StandardTrainer", "AddedTrainer"))
    assert standard.data.metrics["overhead/page_faults"] > 0
    with open(added / "s.csv", encoding="utf-8") as file:
        rows = {row["trainer"]: row for row in csv.DictReader(file)}
    for run, name in ((standard, "StandardTrainer"), (other, "AddedTrainer")):
        assert float(rows[name]["overhead/page_faults"]) == run.data.metrics["overhead/page_faults"]
    assert float(rows["AddedTrainer"]["vs_standard/overhead/page_faults_ratio"]) > 0
    assert "page faults" in (added / "runs" / "s" / "summary.md").read_text(encoding="utf-8")
    assert "page faults" in (added / "runs" / "s" / "comparison.html").read_text(encoding="utf-8")


def test_a_trainer_is_measured_and_has_its_colour(added: Path) -> None:
    assert runs_of(added)["AddedTrainer_tiny_bs2_seq8"].info.status == "FINISHED"
    assert "#123456" in (added / "runs" / "s" / "comparison.html").read_text(encoding="utf-8")


def test_a_report_is_in_the_folder_and_in_mlflow(added: Path) -> None:
    name = "StandardTrainer_tiny_bs2_seq8"
    assert "2 timed steps" in (added / "runs" / "s" / name / "added.html").read_text(encoding="utf-8")
    assert "added.html" in artifacts_of(added, runs_of(added)[name])


def test_a_finding_is_told_in_every_medium(added: Path) -> None:
    for name in ("summary.md", "comparison.html"):
        assert "2 cells were found." in (added / "runs" / "s" / name).read_text(encoding="utf-8")
