"""`dpprof calibrate`: measure the times of operators, from which steps are predicted."""

from functools import partial

from dpprof.cli.command import Asked, running_command
from dpprof.config.entry_points import CalibrateConfig
from dpprof.config.training import resolve_device

# Share of the processors that others may use before a warning.
_QUIET_PCT = 10.0


@running_command
def calibrate(asked: Asked) -> None:
    """Measure the times of operators on this machine.

    Takes two to three minutes. Its file has the times of matrix products, convolutions, attention and all
    other kinds of operators by their sizes; with --world-size also those of collectives. On a GPU they are
    those of fp32, of TF32 and of bf16; --precisions names fewer, and bf16 on a CPU. Send the file to whoever
    plans for this machine: `estimate`, `fit`, `advise` and `plan` predict times from it.

    \b
    dpprof calibrate
    dpprof estimate --target runs/calibration-20260101-120000/times.json
    dpprof calibrate --device cuda --world-size 8
    dpprof calibrate --device cpu --precisions fp32,bf16
    mlflow run . -e calibrate -P device=cpu
    """
    config = asked.take(CalibrateConfig)
    machine = asked.launcher.machine
    device = resolve_device(config.device, cuda_available=machine.cuda_available())
    precisions = config.precisions_on(device)

    from dpprof.cli.progress import Progress
    from dpprof.config.device_times import TIMES
    from dpprof.drive import calibrate as driving
    from dpprof.drive.claim import new_folder
    from dpprof.drive.jobs import Runner

    asked.drive.check_writable()
    asked.getting_ready.close()
    with Progress(is_counted=False) as progress:
        folder = new_folder(asked.drive.runs_dir, driving.KIND).absolute()
        progress.say(f"calibrating {device} in {', '.join(precisions)}; do not use the machine meanwhile")
        progress.warn_if_busy(machine)
        progress.started(1, 1, folder.name)
        runner = Runner(asked.launcher, asked.drive.timeout_s, partial(progress.line, folder.name))
        times, cut_off = driving.calibrate(config, device, folder, runner)
        progress.close()
        if cut_off:
            progress.warn(f"cut off after the first round, so that times are rougher: {cut_off}")
        if times.others_pct is not None and times.others_pct > _QUIET_PCT:
            progress.warn(f"others had {times.others_pct:.0f} % of the processors: calibrate again")
        where = f"run {driving.log(times, folder)} in MLflow"
        progress.say(f"calibrated {times.gpu} in {progress.duration}; {where}")
        progress.say(f"predict steps on it: --device {device} --target {folder / TIMES}")
