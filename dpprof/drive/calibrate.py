"""Measures the times of operators on a device, and logs them to MLflow."""

from pathlib import Path
from typing import NamedTuple

from dpprof.config.device_times import TIMES, DeviceTimes
from dpprof.config.entry_points import CalibrateConfig
from dpprof.drive.jobs import Runner, stop_on_signals
from dpprof.drive.launch.job import CALIBRATE, Job, measuring_command
from dpprof.errors import ExperimentsFailed, Interrupted
from dpprof.record.figures.results import FINISHED
from dpprof.record.folder import RunFolder, SweepFolder
from dpprof.tracking.tracker import Summary, Tracker

KIND = "calibration"


class Calibrated(NamedTuple):
    """A table, and why it has the first round alone, if it was cut off after that."""

    times: DeviceTimes
    cut_off: str = ""


def calibrate(asked: CalibrateConfig, device: str, folder: Path, runner: Runner) -> Calibrated:
    """Measure the times of the device where jobs run, into a folder.

    Raises ExperimentsFailed if that did not come to the end of a round, and Interrupted; what was measured
    by then is kept in the folder.
    """
    run, ranks = RunFolder(folder), asked.world_size
    command = measuring_command(folder, CALIBRATE, device, ",".join(asked.precisions_on(device)))
    num_gpus, num_ranks = ranks if device == "cuda" else 0, ranks if ranks > 1 else 0
    job = Job(run, command, run.log, runner.timeout_s, num_ranks=num_ranks, num_gpus=num_gpus)
    with stop_on_signals(runner.stop):
        ended = runner.measure(job)
    if ended.interrupted or runner.stop.requested:
        kept = f"; {folder / TIMES} has the first round" if (folder / TIMES).exists() else ""
        raise Interrupted((ended.said or "stopped before everything was measured") + kept)
    why = "timeout_s was over" if ended.timed_out else ended.said or ended.how
    if not (folder / TIMES).exists():
        raise ExperimentsFailed(f"nothing was calibrated: {why}; see {run.log}")
    return Calibrated(DeviceTimes.read(folder / TIMES), why if ended.code or ended.timed_out else "")


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
