"""`dpprof test`: quickly check that every trainer works and trains correctly on this machine."""

from dpprof.cli.command import Asked, run, running_command
from dpprof.config.entry_points import TestConfig
from dpprof.config.grid import experiments_to_verify
from dpprof.vocabulary.formats import counted


@running_command
def test(asked: Asked) -> None:
    """Check every trainer on this machine.

    Each trainer does a step on a small model, and is verified as by `dpprof verify`: its gradient, its
    noise, and what one sample can change.

    \b
    dpprof test --device cpu
    mlflow run . -e test -P device=cpu
    """
    device = asked.take(TestConfig).device
    has_cuda = asked.launcher.machine.cuda_available()
    passes = "clean,memory,verify"
    experiments = experiments_to_verify({"device": device}, cuda_available=has_cuda, passes=passes)
    asked.start_early(next(iter(experiments.values())))

    from dpprof.drive.sweep import TrainerCheck
    from dpprof.pages.sweep_reports import write_sweep_reports

    check = TrainerCheck("", asked.drive, asked.launcher, experiments, write_reports=write_sweep_reports)

    with asked.begun(check, "test") as progress:
        progress.say(f"checking {counted(len(check.experiments), 'trainer')} with a small model")
        run(check, progress)
        progress.say("")
        for trainer, (passed, words) in check.verdicts.items():
            if passed:
                progress.say(f"[TEST OK] {trainer} passed local test.")
                progress.say(f"          {words}")
            else:
                progress.say(f"[TEST FAILED] {trainer}: {words}")
        progress.say(f"tested in {progress.duration}; kept in {check.folder.path}")
