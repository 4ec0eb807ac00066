"""Has a workload checked in a measuring process before anything is timed. Leaves no run and no folder."""

from collections.abc import Callable, Sequence
from tempfile import TemporaryDirectory

from dpprof.config.experiment import ExperimentConfig
from dpprof.drive.jobs import run_job
from dpprof.drive.launch.job import Exit, Job, check_command
from dpprof.drive.launch.launcher import Launcher
from dpprof.drive.stop import Stop, stop_on_signals
from dpprof.errors import ConfigError, ExperimentsFailed, Interrupted
from dpprof.record.check import TRAINING, CheckAnswer, CheckFolder
from dpprof.record.folder import RunFolder
from dpprof.vocabulary.log_lines import SAID
from dpprof.vocabulary.workloads import BUILT_IN_WORKLOAD


def refuse_unusable(
    experiment: ExperimentConfig, depth: str, launcher: Launcher, timeout_s: float, stop: Stop
) -> None:
    """Raise ConfigError if an experiment's workload is not there or breaks the contract.

    If the process that looks comes to no answer, the experiments will tell why.
    """
    if experiment.workload != BUILT_IN_WORKLOAD:
        answer, _ = _answered(depth, [experiment], launcher, timeout_s, lambda line: None, stop)
        if answer is not None and answer.refused is not None:
            raise ConfigError(answer.refused)


def check_training(
    experiments: Sequence[ExperimentConfig],
    launcher: Launcher,
    timeout_s: float,
    on_line: Callable[[str], None],
) -> CheckAnswer:
    """What the trainers of these experiments stumble on, all of one workload.

    `on_line` gets what is being done. Raises ConfigError if the workload cannot be used, ExperimentsFailed
    if the process ended without an answer.
    """
    stop = Stop()
    with stop_on_signals(stop):
        answer, why_not = _answered(TRAINING, experiments, launcher, timeout_s, on_line, stop)
    if answer is None:
        raise ExperimentsFailed(f"the check came to no end: {why_not}")
    if answer.refused is not None:
        raise ConfigError(answer.refused)
    return answer


def _answered(
    depth: str,
    experiments: Sequence[ExperimentConfig],
    launcher: Launcher,
    timeout_s: float,
    on_line: Callable[[str], None],
    stop: Stop,
) -> tuple[CheckAnswer | None, str]:
    """The answer, or how the process ended without one. Raises Interrupted if the user stopped it."""

    def pass_on(line: str) -> None:
        if line.startswith(SAID):
            on_line(line.removeprefix(SAID))

    with TemporaryDirectory(prefix=".dpprof-check-", dir=launcher.scratch) as path:
        folder = CheckFolder(path)
        folder.ask(depth, experiments)
        job = Job(
            RunFolder(path),
            check_command(folder.path),
            folder.log,
            timeout_s,
            experiments[0].workload,
            num_gpus=int(any(config.device == "cuda" and not config.is_estimate for config in experiments)),
            is_measured=False,
        )
        ended = run_job(launcher, job, pass_on, stop)
        if ended.interrupted or stop.requested:
            raise Interrupted("stopped before anything was measured")
        return folder.read_answer(), _how_it_ended(ended, folder, timeout_s)


def _how_it_ended(ended: Exit, folder: CheckFolder, timeout_s: float) -> str:
    if ended.timed_out:
        return f"stopped after timeout_s={timeout_s:g} seconds"
    if ended.oom_killed:
        return "out of memory: check a smaller model or a shorter seq_len, where the same traps show"
    log = folder.log.read_text(encoding="utf-8", errors="replace") if folder.log.exists() else ""
    return (log.strip().splitlines() or [f"exit code {ended.code}"])[-1]
