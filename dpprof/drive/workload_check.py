"""Checks a workload in a measuring process before anything is timed. Leaves no run."""

import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.machinery import PathFinder
from tempfile import TemporaryDirectory

from dpprof.config.experiment import ExperimentConfig
from dpprof.drive.jobs import Runner, stop_on_signals
from dpprof.drive.launch.job import CHECK, Exit, Job, measuring_command
from dpprof.drive.launch.launcher import Launcher
from dpprof.drive.launch.local import LocalMachine
from dpprof.errors import ConfigError, ExperimentsFailed, Interrupted, shortened, shown
from dpprof.record.check import TRAINING, CheckAnswer, CheckFolder
from dpprof.record.files import read_text
from dpprof.record.folder import RunFolder
from dpprof.vocabulary.messages import SAID
from dpprof.vocabulary.workloads import BUILT_IN_WORKLOAD, WORKLOADS, listed


def refuse_unusable(experiment: ExperimentConfig, depth: str, runner: Runner) -> None:
    """Raise ConfigError if a workload is missing or breaks the contract; not if the check itself dies."""
    if experiment.workload != BUILT_IN_WORKLOAD:
        answer, _ = _answered(depth, [experiment], runner)
        if answer is not None and answer.refused is not None:
            raise ConfigError(answer.refused)


def check_training(experiments: Sequence[ExperimentConfig], runner: Runner) -> CheckAnswer:
    """Find the problems of these experiments' trainers with their common workload.

    Raises ConfigError if the workload cannot be used, ExperimentsFailed if the process ended without an
    answer.
    """
    with stop_on_signals(runner.stop):
        answer, why_not = _answered(TRAINING, experiments, runner)
    if answer is None:
        raise ExperimentsFailed(f"the check came to no end: {why_not}")
    if answer.refused is not None:
        raise ConfigError(answer.refused)
    return answer


def _answered(
    depth: str, experiments: Sequence[ExperimentConfig], runner: Runner
) -> tuple[CheckAnswer | None, str]:
    """Return the answer, or how the process ended without one. Raises Interrupted if the user stopped it."""
    with TemporaryDirectory(prefix=".dpprof-check-", dir=runner.launcher.scratch) as path:
        folder = CheckFolder(path)
        folder.ask(depth, experiments)
        job = Job(
            RunFolder(path),
            measuring_command(folder.path, CHECK),
            folder.log,
            runner.timeout_s,
            experiments[0].workload,
            num_gpus=int(any(config.device == "cuda" and not config.is_estimate for config in experiments)),
            is_measured=False,
        )
        ended = runner.measure(job)
        if ended.interrupted or runner.stop.requested:
            raise Interrupted(ended.said or "stopped before anything was measured")
        return folder.read_answer(), _how_it_ended(ended, folder, runner.timeout_s)


def _how_it_ended(ended: Exit, folder: CheckFolder, timeout_s: float) -> str:
    if ended.timed_out:
        return f"stopped after timeout_s={timeout_s:g} seconds"
    if ended.oom_killed:
        return "out of memory: check a smaller model or a shorter seq_len, where the same traps show"
    lines = read_text(folder.log).strip().splitlines()
    if ended.code == 1 and lines and not lines[-1].startswith(SAID):
        return lines[-1]
    began = [line.removeprefix(SAID) for line in lines if line.startswith(SAID)]
    during = f' in "{began[-1]}"' if began else ""
    return ended.said or f"{ended.how}{during}"


def refuse_missing_module(workload: str, launcher: Launcher) -> None:
    """Raise ConfigError if the package of a workload is not found here; nothing if jobs run elsewhere.

    The measuring process looks for modules deeper in a package, before anything is measured.
    """
    if ":" not in workload or not isinstance(launcher.machine, LocalMachine):
        return
    known = WORKLOADS.get(listed(workload))
    if known is not None:
        if known.package and not _is_found(known.package):
            raise ConfigError(
                f"workload: {known.name} needs {known.package}: pip install 'dpprof[{known.extra}]'"
            )
        return
    name = workload.partition(":")[0].partition(".")[0]
    if name not in sys.modules and not _is_found(name):
        advice = "run from its folder, or put that on PYTHONPATH"
        raise ConfigError(f"workload: got {shown(workload)}, there is no module {shortened(name)}: {advice}")


def _is_found(name: str) -> bool:
    """Tell if any finder knows the module; the measuring process also searches the working directory."""
    is_known = importlib.util.find_spec(name) is not None
    return is_known or PathFinder.find_spec(name, [os.getcwd()]) is not None
