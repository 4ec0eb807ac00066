"""Files of a run folder and of a sweep folder: the only place that names them."""

import dataclasses
import json
import os
import stat
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from dpprof.config.experiment import ExperimentConfig
from dpprof.config.flat import from_flat, to_flat
from dpprof.errors import DpprofError, writable
from dpprof.json_files import naming, read_if_there, read_json, typed
from dpprof.record.files import remove, write_gzipped_json, write_text
from dpprof.record.ledger import LedgerResult, StepTimeline
from dpprof.record.record import Failure, Predicted, Record

# File name suffix by which TensorBoard's profiler plugin finds compressed traces.
TRACE_SUFFIX = ".pt.trace.json.gz"


@dataclass
class Artifacts:
    """Files of a run folder to upload, and descriptions of those left out, such as links."""

    files: list[Path] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


class RunFolder:
    """Folder of one experiment. Its `name` is the run's: `<Trainer>_<model>_bs<B>_seq<T>`."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.name = self.path.name
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
        """Return the folder of a rank: this one for rank 0, a subfolder for each other."""
        return self if rank == 0 else RunFolder(self.ranks / str(rank))

    def traces(self) -> list[Path]:
        """Return the traces of torch.profiler."""
        return sorted(self.tensorboard.glob(f"*{TRACE_SUFFIX}"))

    def counter_report(self, config: ExperimentConfig, suffix: str) -> Path:
        """Return the path of Nsight Compute's report (`.ncu-rep`) or of the values read from it (`.csv`)."""
        name = f"report_{config.trainer_title}_bs{config.batch_size}_seq{config.seq_len}"
        return self.counter_reports / (name + suffix)

    def create(self, config: ExperimentConfig) -> None:
        """Create the folder with the experiment's configuration, deleting an earlier one."""
        remove(self.path)
        self.path.mkdir(parents=True)
        self.clear_answers()
        self.write_config(config)

    def clear_answers(self) -> None:
        """Delete the results of an earlier measurement, except other ranks', and make the traces' folder."""
        pages = (self.timeline_page, self.timeline_image, self.roofline_page, self.verify_page)
        formats = (self.memory_snapshot, self.memory_trace, self.peak_stacks)
        answers = (self.record, self.error, self.ledger, self.counter_log, self.stacks)
        for path in (*answers, *pages, *formats, self.mlflow, self.reports, self.counter_reports):
            remove(path)
        remove(self.tensorboard)
        self.tensorboard.mkdir()

    def write_config(self, config: ExperimentConfig) -> None:
        """Save the experiment's configuration."""
        write_text(self.config, json.dumps(to_flat(config), indent=1))

    def read_config(self) -> ExperimentConfig:
        """Read the configuration, completed by defaults. Raises DpprofError if it cannot be used."""
        data = read_json(self.config)
        with naming(self.config):
            if not isinstance(data, dict):
                raise DpprofError("it holds no JSON object")
            return from_flat(data)

    def read_record(self) -> Record | None:
        """Read the record, if there is one. Raises DpprofError if the file is damaged."""
        return read_if_there(self.record, Record.from_data)

    def write_record(self, record: Record) -> None:
        """Save the measurements so far."""
        _write(self.record, record)

    def read_error(self) -> Failure | None:
        """Read the failure, if there was one. Raises DpprofError if the file is damaged."""
        return read_if_there(self.error, partial(typed, Failure))

    def write_error(self, failure: Failure) -> None:
        """Save why the experiment failed."""
        _write(self.error, failure)

    def read_predicted(self) -> Predicted | None:
        """Read the plan's prediction, if there is one. Raises DpprofError if the file is damaged."""
        return read_if_there(self.predicted, partial(typed, Predicted))

    def write_predicted(self, predicted: Predicted) -> None:
        """Save the plan's prediction."""
        _write(self.predicted, predicted)

    def write_ledger(self, result: LedgerResult, timeline: StepTimeline) -> None:
        """Save the ledger's result with the step's timeline."""
        data = {"ledger": dataclasses.asdict(result), "timeline": timeline.to_dict()}
        write_gzipped_json(self.ledger, data)

    def read_timeline(self) -> StepTimeline | None:
        """Read the step's timeline, if it was kept. Raises DpprofError if the file is damaged."""
        return read_if_there(self.ledger, _timeline)

    def artifacts(self) -> Artifacts:
        """Return the files to upload, subfolders included. Links are not followed: they may lead anywhere."""
        found = Artifacts()
        own = {self.mlflow, self.reports}
        for path in sorted(self.path.rglob("*")):
            kind = path.lstat().st_mode
            if path in own or path.suffix == ".part" or stat.S_ISDIR(kind):
                continue
            name = path.relative_to(self.path).as_posix()
            if writable(name) != name or name.startswith(".."):  # MLflow refuses these
                found.left_out.append(f"{writable(name)} (an odd name)")
            elif not stat.S_ISREG(kind) or not os.access(path, os.R_OK):
                found.left_out.append(f"{name} (not a readable file)")
            else:
                found.files.append(path)
        return found


def _write(path: Path, data: Record | Failure | Predicted) -> None:
    write_text(path, json.dumps(dataclasses.asdict(data), indent=1))


def _timeline(data: Any) -> StepTimeline:
    if not isinstance(data, dict) or not isinstance(data.get("timeline"), dict):
        raise DpprofError("it holds no timeline")
    return StepTimeline.from_dict(data["timeline"])


@dataclass
class SweepState:
    """Kind of a sweep, names of all experiments, with or without folders."""

    kind: str = "sweep"
    experiments: list[str] = field(default_factory=list)


class SweepFolder:
    """Folder of a sweep, with its name: its run folders and the files about the whole sweep."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.name = self.path.name
        self.state = self.path / "sweep.json"
        self.mlflow = self.path / "mlflow.json"
        self.summary_markdown = self.path / "summary.md"
        self.summary_json = self.path / "summary.json"
        self.comparison_page = self.path / "comparison.html"
        self.roofline_page = self.path / "roofline.html"

    def read_state(self) -> SweepState:
        """Read the state, if there is one. Raises DpprofError if the file is damaged."""
        # 0.3.0.dev0 noted the id of the parent run, which `mlflow.json` has.
        read = partial(typed, SweepState, obsolete=("mlflow_run_id",))
        return read_if_there(self.state, read) or SweepState()

    def set_aside_damaged_state(self) -> str | None:
        """Rename the state file if it cannot be read. Returns a sentence on what was wrong with it."""
        try:
            self.read_state()
        except DpprofError as error:
            aside = self.state.with_name(f"{self.state.name}.damaged")
            os.replace(self.state, aside)
            return f"{error}; it is now {aside.name}"
        return None

    def write_state(self, state: SweepState) -> None:
        """Save the state."""
        self.path.mkdir(parents=True, exist_ok=True)
        write_text(self.state, json.dumps(dataclasses.asdict(state)))

    @property
    def foreseen(self) -> "SweepFolder":
        """Folder for estimates of a larger model, which are not experiments of the sweep."""
        return SweepFolder(self.path / "foreseen")

    def run(self, name: str) -> RunFolder:
        """Return the folder of one experiment."""
        return RunFolder(self.path / name)

    def runs(self) -> list[RunFolder]:
        """Return the existing run folders by name, without the hidden ones (`drive/run.py`)."""
        if not self.path.is_dir():
            return []
        folders = [RunFolder(path) for path in sorted(self.path.iterdir())]
        return [folder for folder in folders if folder.config.exists() and folder.name[0] != "."]
