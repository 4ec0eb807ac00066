"""Measures the times of operators on a device, and logs them to MLflow."""

from collections.abc import Callable
from pathlib import Path

from dpprof.config.device_times import TIMES, DeviceTimes
from dpprof.config.entry_points import CalibrateConfig
from dpprof.drive.jobs import run_measuring
from dpprof.drive.launch.job import Job, calibrating_command
from dpprof.drive.launch.launcher import Launcher
from dpprof.drive.stop import Stop, stop_on_signals
from dpprof.errors import ExperimentsFailed, Interrupted
from dpprof.record.figures.results import FINISHED
from dpprof.record.folder import RunFolder, SweepFolder
from dpprof.tracking.tracker import Summary, Tracker

KIND = "calibration"
Say = Callable[[str], None]


def calibrate(
    asked: CalibrateConfig, device: str, folder: Path, launcher: Launcher, timeout_s: float, say: Say
) -> DeviceTimes:
    """Measure the times of the device where jobs run, into a folder. Raises ExperimentsFailed."""
    ranks = asked.world_size if asked.world_size > 1 else 0
    gpus = asked.world_size if device == "cuda" else 0
    run = RunFolder(folder)
    job = Job(run, calibrating_command(device, folder), run.log, timeout_s, num_ranks=ranks, num_gpus=gpus)
    stop = Stop()
    with stop_on_signals(stop):
        ended = run_measuring(launcher, job, say, stop)
    if ended.interrupted or stop.requested:
        raise Interrupted(ended.said or "stopped before everything was measured")
    if not (folder / TIMES).exists():
        why = f"stopped after timeout_s={timeout_s:g} seconds" if ended.timed_out else ended.said or ended.how
        raise ExperimentsFailed(f"nothing was calibrated: {why}; see {run.log}")
    return DeviceTimes.read(folder / TIMES)


def log(times: DeviceTimes, folder: Path) -> str:
    """Log a calibration as a run with its rates and its file; return the run's id. Raises TrackingError."""
    tracker = Tracker()
    tracker.open()
    params = {"gpu": times.gpu, "device": times.device, **times.versions}
    run_id = tracker.start_parent(folder.name, KIND, params, SweepFolder(folder))
    figures = {f"ceilings/{dtype}_tflop_per_s": rate for dtype, rate in times.tflops.items()}
    figures |= {"ceilings/copy_gb_per_s": times.gb_per_s, "overhead/issue_us": times.issue_us}
    tracker.log_metrics(run_id, figures)
    text = f"Times of {sum(len(each.points) for each in times.operators)} operators on {times.gpu}"
    tracker.finish_parent(run_id, FINISHED, Summary(text, [folder / TIMES, RunFolder(folder).log]))
    return run_id
