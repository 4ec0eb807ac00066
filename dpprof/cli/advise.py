"""`dpprof advise`: suggest changes to an experiment that does not fit or is slow."""

from dpprof.cli.command import Asked, run, running_command
from dpprof.config.entry_points import AdviceConfig
from dpprof.vocabulary.formats import counted


@running_command
def advise(asked: Asked) -> None:
    """Advise what to change when it does not fit, or is slow.

    Estimates one experiment, and the same with one change at a time: another trainer, activation
    checkpointing, bf16, smaller physical batches, the lean loop, other norms, fsdp2, LoRA. Gives each
    change's bytes, FLOPs and predicted time, the cheapest that helps first; if none makes it fit alone,
    several together.

    \b
    dpprof advise --trainer flat --batch-size 32 --target A100-40GB   # 1b
    dpprof advise --trainer ghost --seq-len 2048 --target H100 --headroom 5%
    dpprof advise --plan runs/plan-20260101-120000   # its recommended row
    """
    from dpprof.drive.advise import Advise, experiment_to_advise

    if asked.row is not None:
        asked.values = asked.row.fill(asked.values, "advise")
    own = asked.take(AdviceConfig)
    experiment, changes, left_out = experiment_to_advise(own, asked.values, asked.launcher)
    workers = asked.at_a_time(experiment)

    from dpprof.pages.advice import page, write_advice

    advice = Advise(
        "", asked.drive, asked.launcher, experiment, own, changes, left_out, write_advice, workers
    )

    with asked.begun(advice, "advice", is_counted=False) as progress:
        tried = counted(len(changes) + 1, "change")
        progress.say(f"{advice.name}: {tried} {asked.on_fake_tensors(workers)}")
        run(advice, progress)
        if advice.made is not None:
            progress.show(page(advice.made))
            progress.say(f"advised in {progress.duration}; {advice.folder.path}/advice.html has all of it")
