"""Measures the times of operators on a device, or takes them from a folder, as a run of MLflow's."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from dpprof.config.device_times import TIMES, TYPES, DeviceTimes
from dpprof.config.entry_points import CalibrateConfig
from dpprof.drive.campaign import Campaign, RunOne, Stage
from dpprof.drive.jobs import Runner
from dpprof.drive.launch.job import CALIBRATE, Exit, Job, measuring_command
from dpprof.errors import ExperimentsFailed
from dpprof.findings.comparison.run import used_by_others
from dpprof.record.figures.results import FINISHED, KILLED, Result
from dpprof.record.folder import RunFolder, SweepFolder
from dpprof.tracking.tracker import Summary


@dataclass
class Calibrated(Campaign):
    """Times that lie in the campaign's folder; None if there are none. It measures nothing."""

    kind = "calibration"

    times: DeviceTimes | None = field(default=None, kw_only=True)

    @classmethod
    def is_in(cls, home: SweepFolder) -> bool:
        """Tell if a folder is a calibration's, also if only the measuring process ran. Raises DpprofError."""
        if home.state.exists():
            return home.read_state().kind == cls.kind
        return (home.path / TIMES).exists() and not home.runs()

    def stages(self) -> Iterator[Stage]:
        """None."""
        yield from ()

    @property
    def file(self) -> Path:
        """The file of the times."""
        return self.folder.path / TIMES

    @property
    def missing(self) -> list[str]:
        """The operators, unless all rounds of theirs were measured."""
        return [] if self.times is not None and self.times.is_whole else ["its operators"]

    @property
    def status(self) -> str:
        """MLflow status of the run: also KILLED if the times are not whole."""
        status = super().status
        return KILLED if status == FINISHED and self.missing else status

    @property
    def disturbed(self) -> str | None:
        """Processors that others used, in a sentence, if that made the times too long."""
        times = self.times
        if times is None or times.others_pct is None or not times.processors:
            return None
        return used_by_others(times.others_pct, times.processors, times.threads)

    def summarize(self) -> Summary:
        """Return what MLflow has of the times: rates, the file, and the log of the measuring process."""
        files = [path for path in (self.file, RunFolder(self.folder.path).log) if path.exists()]
        times = self.times
        if times is None:
            why = "its times cannot be read" if self.file.exists() else "no times were measured"
            return Summary(why, files)
        told = [f"Times of {sum(len(each.points) for each in times.operators)} operators on {times.gpu}"]
        told += ["cut off after the first round"] * (not times.is_whole)
        told += [self.disturbed] if self.disturbed else []
        dtypes = {each.dtype for each in times.operators}
        params = {
            "gpu": times.gpu,
            "device": times.device,
            "precisions": ",".join(name for name, dtype in TYPES.items() if dtype in dtypes),
            "world_size": times.ranks,
            **times.versions,
        }
        figures = {f"ceilings/{dtype}_tflop_per_s": rate for dtype, rate in times.tflops.items()}
        figures |= {"ceilings/copy_gb_per_s": times.gb_per_s}
        figures |= {"overhead/issue_us": times.issue_us} if times.issue_us else {}  # 0: not known
        return Summary("; ".join(told), files, figures=figures, params=params)


@dataclass
class Calibration(Calibrated):
    """Times of a device, measured where jobs run by a job that `ended`."""

    asked: CalibrateConfig
    device: str
    ended: Exit | None = field(default=None, init=False)

    @property
    def params(self) -> dict[str, object]:
        """Params that are known before the times are."""
        return {"device": self.device, "world_size": self.asked.world_size}

    def stages(self) -> Iterator[Stage]:
        """One job, which is no experiment."""
        yield Stage([self._measure], at_a_time=1)

    def _measure(self, run_one: RunOne) -> list[Result]:
        folder, ranks = RunFolder(self.folder.path.absolute()), self.asked.world_size
        self.watcher.started(1, 1, self.name)
        line = partial(self.watcher.line, self.name)
        runner = Runner(self.launcher, self.drive.timeout_s, line, self.stop)
        precisions = ",".join(self.asked.precisions_on(self.device))
        command = measuring_command(folder.path, CALIBRATE, self.device, precisions)
        num_gpus, num_ranks = ranks if self.device == "cuda" else 0, ranks if ranks > 1 else 0
        self.ended = runner.measure(
            Job(folder, command, folder.log, runner.timeout_s, num_ranks=num_ranks, num_gpus=num_gpus)
        )
        line("logging to MLflow")
        if self.ended.interrupted:
            self.stop.request()
        if self.file.exists():
            self.times = DeviceTimes.read(self.file)
        return []

    @property
    def cut_off(self) -> str:
        """Reason why the times are not whole; empty if they are."""
        ended = self.ended
        if ended is None or not (self.missing or ended.code or ended.timed_out):
            return ""
        return "timeout_s was over" if ended.timed_out else ended.said or ended.how

    @property
    def stopped(self) -> str:
        """Message that says which times there are, and why it was stopped if that was not the user."""
        said = (self.ended and self.ended.said) or "stopped"
        if self.times is None:
            return f"{said}; no times were measured"
        return f"{said}; {self.file} has {'the first round alone' if self.missing else 'all times'}"

    def raise_if_failed(self) -> None:
        """Raise ExperimentsFailed without any times; what is cut off after its first round can be used."""
        if self.times is None:
            log = RunFolder(self.folder.path).log
            raise ExperimentsFailed(f"nothing was calibrated: {self.cut_off}; see {log}")
