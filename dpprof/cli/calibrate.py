"""`dpprof calibrate`: measure the times of operators, from which steps are predicted."""

import shlex
from typing import TYPE_CHECKING

from dpprof.cli.command import Asked, run, running_command
from dpprof.config.entry_points import CalibrateConfig
from dpprof.config.training import resolve_device

if TYPE_CHECKING:
    from dpprof.cli.progress import Progress
    from dpprof.config.device_times import DeviceTimes
    from dpprof.drive.calibrate import Calibration


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
    precisions = ", ".join(config.precisions_on(device))

    from dpprof.drive.calibrate import Calibration

    found = Calibration("", asked.drive, asked.launcher, config, device)
    with asked.begun(found, found.kind, is_counted=False) as progress:
        progress.say(f"calibrating {device} in {precisions}; everything is kept in {found.folder.path}")
        progress.say("do not use the machine meanwhile")
        progress.warn_if_busy(machine)
        run(found, progress)
        if found.times is not None and not found.interrupted:
            _tell(found, found.times, progress)


def _tell(found: "Calibration", times: "DeviceTimes", progress: "Progress") -> None:
    """Say what may be wrong with the times, where they are, and how to predict with them."""
    if found.cut_off:
        progress.warn(f"cut off after the first round, so that times are rougher: {found.cut_off}")
    if found.disturbed:
        progress.warn(f"{found.disturbed}: times are too long. Calibrate again when the machine is quiet")
    where = "" if found.not_logged else f"; run {found.parent} in MLflow"
    progress.say(f"calibrated {times.gpu} in {progress.duration}; kept in {found.file}{where}")
    options = ["--device", times.device, "--target", str(found.file)]
    options += ["--parallel", "ddp", "--world-size", str(times.ranks)] if times.ranks > 1 else []
    progress.say(f"predict steps on it: dpprof estimate {shlex.join(options)}")
