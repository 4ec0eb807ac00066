"""`dpprof plan`: from a privacy budget to batch, noise, memory and hours."""

import shlex
from typing import TYPE_CHECKING

from dpprof.cli.command import Asked, run, running_command
from dpprof.config.entry_points import FitConfig, PlanConfig
from dpprof.vocabulary.formats import counted
from dpprof.vocabulary.trainers import short_name

if TYPE_CHECKING:
    from dpprof.cli.progress import Progress
    from dpprof.drive.plan import Plan


@running_command
def plan(asked: Asked) -> None:
    """Plan a training from its privacy budget.

    For each logical batch: the noise multiplier, and how many steps. For each trainer: the largest physical
    batch that fits, found by estimates, and how long training takes: by measured steps if there are
    any, else as predicted. Recommends one way to train, and says why.

    \b
    dpprof plan --target H100 --num-devices 8 --dataset-size 10000000   # 1b
    dpprof plan --target T4 --model-size small --dataset-size 50000 --epochs 10
    dpprof plan --device cpu --device-memory-gib 4 --dataset-size 20000
    """
    from dpprof.drive.plan import Plan, experiments_to_plan, noises

    budget = asked.take(PlanConfig)
    for batch in budget.batches:
        budget.check_against(batch)
    experiments, left_out = experiments_to_plan(budget, asked.values, asked.launcher)
    workers = asked.at_a_time(next(iter(experiments.values())))

    from dpprof.drive.measured_runs import measured_runs
    from dpprof.findings.plan.reading import earlier_guarantees
    from dpprof.pages.advice import write_advice
    from dpprof.pages.plan import write_plan

    search = FitConfig(headroom=budget.headroom, logical_batch=2)
    writers = write_plan, write_advice
    planned = Plan("", asked.drive, asked.launcher, experiments, search, workers, budget, left_out, *writers)

    with asked.begun(planned, "plan", is_counted=False) as progress:
        batches = counted(len(budget.batches), "logical batch", "logical batches")
        progress.say(f"{planned.name}: the noise for {batches}")
        planned.earlier = earlier_guarantees(planned.folder.path.parent)
        planned.noises = noises(budget, budget.batches, planned.earlier)
        planned.measured = measured_runs(budget.measured, experiments, planned.folder, progress.warn)
        trainers = counted(len(experiments), "trainer")
        progress.say(f"the largest batch of {trainers}, {asked.on_fake_tensors(workers)}")
        run(planned, progress)
        _print(planned, progress)


def _print(planned: "Plan", progress: "Progress") -> None:
    from dpprof.pages.plan import page

    for answer in planned.answers:
        if answer.is_open and answer.size < planned.most:
            stopped = f"the search stopped at {answer.size:,} samples, and more may fit"
            progress.warn(f"{short_name(answer.config.trainer)}: {stopped}")
    if planned.made is None or planned.interrupted:
        return
    progress.show(page(planned.made))
    progress.say(f"planned in {progress.duration}; {planned.folder.path}/plan.html has all of it")
    folder = shlex.quote(str(planned.folder.path))
    if one := planned.made.next_best:
        row = f"{folder} --trainer {short_name(one.trainer)} --logical-batch {one.noise.logical_batch}"
        progress.say(f"the next best row, measured: dpprof profile --plan {row}")
    if planned.made.recommended is not None:
        progress.say(f"the training script: dpprof snippet {folder} --output train.py")
        progress.say(f"the recommended row, measured: dpprof profile --plan {folder}")
        progress.say(f"what would make it faster or smaller: dpprof advise --plan {folder}")
