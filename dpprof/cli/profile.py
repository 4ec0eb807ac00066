"""`dpprof profile`: measure one experiment."""

from dpprof.cli.command import Asked, run, running_command
from dpprof.config.flat import parse_experiment
from dpprof.config.measuring import MeasuringConfig


@running_command
def profile(asked: Asked) -> None:
    """Measure one experiment.

    One trainer at one batch size and sequence length, with the passes that you choose.

    \b
    dpprof profile --trainer DPGhostClippingTrainer --batch-size 4 --seq-len 512
    dpprof profile --plan runs/plan-20260101-120000   # the recommended row
    dpprof profile --plan FOLDER --trainer flat --logical-batch 1024   # another
    mlflow run . -e profile -P trainer=DPGhostClippingTrainer -P batch_size=4
    """
    row, machine = asked.row, asked.launcher.machine
    values = row.fill(asked.values, "profile", has_cuda=machine.cuda_available()) if row else asked.values
    config = parse_experiment(values, MeasuringConfig)
    asked.look_for(config.workload)
    config = config.resolve(cuda_available=machine.cuda_available())
    asked.start_early(config)

    from dpprof.drive.sweep import SingleRun
    from dpprof.pages.fitted_table import FittedTable
    from dpprof.pages.run_tables import beside_plan
    from dpprof.record.figures.results import FINISHED

    differences = row.differences(config) if row else []
    predicted = row.predicted if row and not differences else None
    single = SingleRun("", asked.drive, asked.launcher, config, predicted)

    with asked.begun(single, "profile") as progress:
        progress.say(f"measuring on {config.device}; everything is kept in {single.run_folder.path}")
        progress.warn_if_busy(machine)
        if differences:
            progress.warn(f"it is not set beside the plan: {'; '.join(differences)}")
        run(single, progress)
        folder = single.run_folder
        for result in single.results if single.not_logged is None else ():
            if result.status == FINISHED and result.record is not None:
                pages = [page for page in (folder.timeline_page, folder.roofline_page) if page.exists()]
                size = f"{result.record.num_parameters:,} parameters"
                progress.say("; ".join([f"measured in {progress.duration}", size, *map(str, pages)]))
                progress.say(f"where its memory and time go: dpprof show {folder.path}")
                if result.predicted is not None:
                    plan = FittedTable(beside_plan(result.predicted, result.record))
                    progress.console.print(plan)
