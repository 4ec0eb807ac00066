"""The files of a run folder and of a sweep folder: the only place that names them."""

import dataclasses
import json
import os
import shutil
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dpprof.config.experiment import ExperimentConfig
from dpprof.config.flat import from_flat, to_flat
from dpprof.errors import DpprofError, writable
from dpprof.json_files import naming, read_json, typed
from dpprof.record.files import write_gzipped_json, write_text
from dpprof.record.ledger import LedgerResult, StepTimeline
from dpprof.record.predicted import Predicted
from dpprof.record.record import Failure, Record
from dpprof.vocabulary.loops import LEAN

# What TensorBoard's profiler plugin knows a compressed trace by.
TRACE_SUFFIX = ".pt.trace.json.gz"
# What is not uploaded.
_KINDS = {
    stat.S_IFLNK: "a link",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


@dataclass
class Artifacts:
    """The files of a run folder that are uploaded, and what is not, in words: links, pipes, sockets."""

    files: list[Path] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


class RunFolder:
    """Everything that one experiment left behind."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.config = self.path / "config.json"
        self.record = self.path / "record.json"
        self.error = self.path / "error.json"
        self.log = self.path / "run.log"
        self.tensorboard = self.path / "tensorboard"
        self.ledger = self.path / "ledger.json.gz"
        self.timeline_page = self.path / "memory_timeline.html"
        self.timeline_image = self.path / "memory_timeline.png"
        self.memory_snapshot = self.path / "memory_snapshot.pickle"
        self.memory_trace = self.path / "memory_trace.json.gz"
        self.peak_stacks = self.path / "peak_memory.collapsed"
        self.peak_speedscope = self.path / "peak_memory.speedscope.json"
        self.roofline_page = self.path / "roofline.html"
        self.verify_page = self.path / "verify.html"
        self.counter_reports = self.path / "ncu_reports"
        self.counter_log = self.path / "ncu.log"
        self.mlflow = self.path / "mlflow.json"
        self.reports = self.path / "reports.json"
        self.stacks = self.path / "stacks.txt"
        self.predicted = self.path / "predicted.json"
        self.ranks = self.path / "ranks"

    def rank(self, rank: int) -> "RunFolder":
        """What a rank of the experiment left behind: this folder for rank 0, one within it for each other."""
        return self if rank == 0 else RunFolder(self.ranks / str(rank))

    @property
    def name(self) -> str:
        """The run's name: `<Trainer>_<model>_bs<B>_seq<T>`."""
        return self.path.name

    def traces(self) -> list[Path]:
        """The traces of torch.profiler."""
        return sorted(self.tensorboard.glob(f"*{TRACE_SUFFIX}"))

    def counter_report(self, config: ExperimentConfig, suffix: str) -> Path:
        """Nsight Compute's report of the counters pass (`.ncu-rep`) or what was read from it (`.csv`)."""
        name = f"report_{config.trainer}_bs{config.batch_size}_seq{config.seq_len}"
        return self.counter_reports / (name + suffix)

    def create(self, config: ExperimentConfig) -> None:
        """Make the folder anew with the experiment's configuration; what an earlier try left is deleted."""
        if self.path.is_dir():
            shutil.rmtree(self.path)
        self.path.unlink(missing_ok=True)
        self.path.mkdir(parents=True)
        self.clear_answers()
        self.write_config(config)

    def clear_answers(self) -> None:
        """Delete what an earlier measurement left, and make the place for the traces. Not of other ranks."""
        pages = (self.timeline_page, self.timeline_image, self.roofline_page, self.verify_page)
        formats = (self.memory_snapshot, self.memory_trace, self.peak_stacks, self.peak_speedscope)
        notes = (self.mlflow, self.reports)
        for path in (
            self.record,
            self.error,
            self.ledger,
            *pages,
            *formats,
            self.counter_log,
            self.stacks,
            *notes,
        ):
            path.unlink(missing_ok=True)
        for path in (self.tensorboard, self.counter_reports):
            shutil.rmtree(path, ignore_errors=True)
        self.tensorboard.mkdir()

    def write_config(self, config: ExperimentConfig) -> None:
        """Save the experiment's configuration."""
        write_text(self.config, json.dumps(to_flat(config), indent=1))

    def read_config(self) -> ExperimentConfig:
        """The experiment's configuration; what the file leaves out has its default.

        Raises DpprofError if there is no such file, or what it says cannot be used.
        """
        data = read_json(self.config)
        with naming(self.config):
            if not isinstance(data, dict):
                raise DpprofError("it holds no JSON object")
            if "loop" not in data and self.record.exists():  # dpprof 0.1 knew no other loop
                data["loop"] = LEAN
            return from_flat(data)

    def read_record(self) -> Record | None:
        """What was measured, if anything was. Raises DpprofError if the file is damaged."""
        if not self.record.exists():
            return None
        data = read_json(self.record)
        with naming(self.record):
            return Record.from_data(data)

    def write_record(self, record: Record) -> None:
        """Save what was measured so far."""
        write_text(self.record, record.to_json())

    def read_error(self) -> Failure | None:
        """Why the experiment failed, if it did. Raises DpprofError if the file is damaged."""
        if not self.error.exists():
            return None
        data = read_json(self.error)
        with naming(self.error):
            return typed(Failure, data)

    def write_error(self, failure: Failure) -> None:
        """Save why the experiment failed."""
        write_text(self.error, failure.to_json())

    def read_predicted(self) -> Predicted | None:
        """What a plan said of it, if it was measured for one. Raises DpprofError if the file is damaged."""
        if not self.predicted.exists():
            return None
        data = read_json(self.predicted)
        with naming(self.predicted):
            return typed(Predicted, data)

    def write_predicted(self, predicted: Predicted) -> None:
        """Save what a plan said of it."""
        write_text(self.predicted, json.dumps(dataclasses.asdict(predicted), indent=1))

    def write_ledger(self, result: LedgerResult, timeline: StepTimeline) -> None:
        """Save what the ledger found, with the step's timeline."""
        data = {"ledger": dataclasses.asdict(result), "timeline": timeline.to_dict()}
        write_gzipped_json(self.ledger, data)

    def read_timeline(self) -> StepTimeline | None:
        """The step's timeline under the ledger, if it was kept. Raises DpprofError if the file is damaged."""
        if not self.ledger.exists():
            return None
        data = read_json(self.ledger)
        with naming(self.ledger):
            if not isinstance(data, dict) or not isinstance(data.get("timeline"), dict):
                raise DpprofError("it holds no timeline")
            return StepTimeline.from_dict(data["timeline"])

    def artifacts(self) -> Artifacts:
        """The files to upload, those in subfolders too. Links are not followed: they may lead anywhere."""
        found = Artifacts()
        own = {self.mlflow, self.reports}
        for place, folders, names in os.walk(self.path):
            folders.sort()
            for path in (Path(place, name) for name in sorted([*folders, *names])):
                kind = path.lstat().st_mode
                if path in own or path.suffix == ".part" or stat.S_ISDIR(kind):
                    continue
                name = path.relative_to(self.path).as_posix()
                why_not = _KINDS.get(stat.S_IFMT(kind))
                if writable(name) != name or name.startswith(".."):  # MLflow refuses these
                    why_not = "an odd name"
                elif why_not is None and not os.access(path, os.R_OK):
                    why_not = "unreadable"
                if why_not is None:
                    found.files.append(path)
                else:
                    found.left_out.append(f"{writable(name)} ({why_not})")
        return found


@dataclasses.dataclass
class _SweepState:
    """What `sweep.json` may hold."""

    kind: str = ""
    mlflow_run_id: str = ""
    experiments: list[str] = dataclasses.field(default_factory=list)


class SweepFolder:
    """A sweep's run folders, and what was written of it as a whole."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.state = self.path / "sweep.json"
        self.mlflow = self.path / "mlflow.json"
        self.summary_markdown = self.path / "summary.md"
        self.summary_json = self.path / "summary.json"
        self.comparison_page = self.path / "comparison.html"
        self.roofline_page = self.path / "roofline.html"
        self.reports = self.path / "reports.json"

    @property
    def name(self) -> str:
        """The sweep's name."""
        return self.path.name

    def image(self, name: str) -> Path:
        """An image of a chart."""
        return self.path / f"{name}.png"

    def read_state(self) -> dict[str, Any]:
        """What the driving process noted: `kind`, `mlflow_run_id` of the parent, and the names of all
        `experiments`, which may not have folders yet. Empty at first.

        Raises DpprofError if the file is damaged.
        """
        if not self.state.exists():
            return {}
        state: dict[str, Any] = read_json(self.state)
        with naming(self.state):
            typed(_SweepState, state)
        return state

    def set_aside_damaged_state(self) -> str | None:
        """Rename the file of the state if it cannot be read. Returns a sentence on what was wrong with it."""
        try:
            self.read_state()
        except DpprofError as error:
            aside = self.state.with_name(f"{self.state.name}.damaged")
            os.replace(self.state, aside)
            return f"{error}; it is now {aside.name}"
        return None

    def write_state(self, kind: str, run_id: str, experiments: Iterable[str]) -> None:
        """Note the kind of the sweep, its MLflow parent run and its experiments."""
        self.path.mkdir(parents=True, exist_ok=True)
        state = {"kind": kind, "mlflow_run_id": run_id, "experiments": list(experiments)}
        write_text(self.state, json.dumps(state))

    @property
    def foreseen(self) -> "SweepFolder":
        """The estimates of a larger model, which are no experiments of the sweep."""
        return SweepFolder(self.path / "foreseen")

    def run(self, name: str) -> RunFolder:
        """The folder of one experiment."""
        return RunFolder(self.path / name)

    def runs(self) -> list[RunFolder]:
        """The run folders that exist, by name; not the hidden ones (`again.py`)."""
        if not self.path.is_dir():
            return []
        folders = [RunFolder(path) for path in sorted(self.path.iterdir())]
        return [folder for folder in folders if folder.config.exists() and folder.name[0] != "."]
