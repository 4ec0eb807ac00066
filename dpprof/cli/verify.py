"""`dpprof verify`: verify that trainers compute DP-SGD's gradient, privately."""

from dpprof.cli.command import Asked, run, running_command
from dpprof.config.grid import experiments_to_verify
from dpprof.vocabulary.formats import counted


@running_command
def verify(asked: Asked) -> None:
    """Verify that trainers train as DP-SGD does.

    Noise off, the gradient must be that of a naive per-sample loop. Noise on, it must have the right
    deviation and be independent. No sample, however odd, may move the sum by more than max_grad_norm.
    Ends with exit code 3 if a trainer fails.

    \b
    dpprof verify
    dpprof verify --trainers flat,ghost --workload mymodel:gpt2 --precision bf16
    dpprof verify --plan runs/plan-20260101-120000   # its trainer and model
    """
    has_cuda = asked.launcher.machine.cuda_available()
    values = asked.row.fill_verify(asked.values, has_cuda=has_cuda) if asked.row else asked.values
    experiments = experiments_to_verify(values, cuda_available=has_cuda)
    first = next(iter(experiments.values()))
    asked.look_for(first.workload)
    asked.start_early(first)

    from dpprof.drive.sweep import TrainerCheck
    from dpprof.pages.reports.verify import side_by_side
    from dpprof.pages.sweep_reports import write_sweep_reports

    check = TrainerCheck(
        "", asked.drive, asked.launcher, experiments, kind="verify", write_reports=write_sweep_reports
    )

    with asked.begun(check, "verify") as progress:
        progress.say(
            f"verifying {counted(len(experiments), 'trainer')} on {first.device}: {first.model_title}, "
            f"{first.batch_size} samples of {first.seq_len} tokens, {first.precision}"
        )
        run(check, progress)
        progress.show(side_by_side(check.results))
        progress.say(f"verified in {progress.duration}; kept in {check.folder.path}")
