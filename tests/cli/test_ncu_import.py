import shutil
from pathlib import Path

import pytest
from conftest import ROOT, printed, refusal
from programs import make_program

from dpprof.cli.ncu_import import ncu_import
from dpprof.drive.ncu import program
from dpprof.errors import CountersError, CountersUnavailable

REPORTS = ROOT / "tests" / "drive" / "ncu" / "reports"


def imported(report: Path, *options: str) -> list[list[str]]:
    return [line.split() for line in printed(ncu_import, report, *options).splitlines()]


@pytest.fixture(autouse=True)
def without_ncu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(program, "_USUAL_PLACES", ())


def test_a_table_from_elsewhere() -> None:
    rows = imported(REPORTS / "step.csv")
    titles = [" ".join(row) for row in rows if row and row[0] in ("Hardware", "Kernels")]
    assert titles == [
        "Hardware counters by phase",
        "Hardware counters by kernel class",
        "Kernels with the most DRAM traffic (10 of 10)",
    ]
    backward = next(row for row in rows if row[:1] == ["backward"])
    assert backward[:2] == ["backward", "2"]
    assert backward[3:5] == ["14.0", "6.00"]
    assert float(backward[5]) == pytest.approx(20 / 1024 / 140e-6, abs=0.05)


def test_kernels_and_metrics_can_be_chosen() -> None:
    rows = imported(REPORTS / "step.csv", "--kernels", "0", "--counter-metrics", "dram_read_throughput")
    assert not any(row[:1] == ["Kernels"] for row in rows)
    step = next(row for row in rows if row[:1] == ["step"])
    assert step[1] == "11"
    assert step[3:] == ["28.6"]  # nothing else was asked for
    for option, value, said in (
        ("--kernels", "-1", "kernels: got -1"),
        ("--counter-metrics", "x", "counter_metrics: got 'x'"),
    ):
        assert said in refusal(imported, REPORTS / "step.csv", option, value)


def test_a_report_without_phases(tmp_path: Path) -> None:
    (tmp_path / "plain.csv").write_text((REPORTS / "step.csv").read_text().replace("phase:", "part "))
    rows = imported(tmp_path / "plain.csv")
    assert rows[1][:6] == ["no", "kernel", "lies", "in", "a", "phase:"]
    assert ["step", "11", "0.23"] in [row[:3] for row in rows]


def test_what_other_programs_save(tmp_path: Path) -> None:
    """With a byte order mark, or as UTF-16 with Windows's line ends."""
    text = (REPORTS / "step.csv").read_text()
    expected = imported(REPORTS / "step.csv")
    (tmp_path / "marked.csv").write_text(text, encoding="utf-8-sig")
    (tmp_path / "redirected.txt").write_text(text.replace("\n", "\r\n"), encoding="utf-16", newline="")
    assert imported(tmp_path / "marked.csv") == expected
    assert imported(tmp_path / "redirected.txt") == expected


def test_a_report_file_needs_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = tmp_path / "odd [name] é.ncu-rep"
    report.write_bytes(program.REPORT_MAGIC + b"...")
    assert "allowed here: its raw page as CSV; where it was made, export it" in refusal(imported, report)
    ncu = tmp_path / "bin" / "ncu"
    ncu.parent.mkdir()
    shutil.copy(REPORTS / "step.csv", tmp_path / "step.csv")
    asked = tmp_path / "asked"
    tells = f'import sys\nopen({str(asked)!r}, "w").write("\\n".join(sys.argv[1:]))\n'
    make_program(ncu, f"{tells}print(open({str(tmp_path / 'step.csv')!r}).read())\n")
    assert imported(report) == imported(REPORTS / "step.csv")
    options = ["--csv", "--page", "raw", "--print-units", "base"]
    assert asked.read_text().splitlines() == ["--import", str(report), *options]


@pytest.mark.parametrize(
    ("name", "error"),
    [("permission.csv", CountersUnavailable), ("empty.csv", CountersError), ("README.md", CountersError)],
)
def test_what_cannot_be_read_gives_a_sentence(name: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        imported(REPORTS / name)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    said = refusal(imported, tmp_path / "nowhere.csv")
    assert said.startswith("report: got ")
    assert "allowed: a file that can be read (No such file" in said
    assert "Is a directory" in refusal(imported, tmp_path)
