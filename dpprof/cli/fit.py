"""`dpprof fit`: find the largest batch or sequence that fits a device's memory."""

import dataclasses
from collections.abc import Iterable

from dpprof.cli.command import Asked, run, running_command
from dpprof.config.entry_points import ACCUMULATING, WORLD_SIZE, FitConfig
from dpprof.config.estimating import EstimatingConfig
from dpprof.config.experiment import ExperimentConfig
from dpprof.config.grid import build_grid
from dpprof.errors import ConfigError, refuse
from dpprof.vocabulary.formats import counted
from dpprof.vocabulary.parallel import FSDP2, NONE


@running_command
def fit(asked: Asked) -> None:
    """Find the largest batch that fits a device.

    Searches for each trainer and sequence length; with --along seq_len, for the longest sequence at each
    batch size, and with --along world_size for the fewest GPUs that hold the model in shards. Steps run on
    fake tensors, so no GPU is needed. --verify true then measures the answers here.

    \b
    dpprof fit --target H100 --seq-lens 512,1024       # 1b, all trainers
    dpprof fit --target A100-40GB --logical-batch 4096 --precisions fp32,bf16
    dpprof fit --target A100-40GB --workload huggingface:gpt2 --train lora
    dpprof fit --target T4 --parallel fsdp2 --along world_size --trainers bk
    dpprof fit --device cpu --device-memory-gib 0.5 --verify true
    """
    own = asked.take(FitConfig)
    axis, auto = {"batch_size": ("batch_sizes", "auto"), "seq_len": ("seq_lens", "auto")}.get(
        own.along, (own.along, "1")
    )
    if str(asked.values.get(axis, auto)) != auto:
        raise refuse(axis, asked.values[axis], f"{auto} with along={own.along}, which finds it")
    grid = build_grid(
        {**asked.values, axis: "1", "savings": False},
        EstimatingConfig,
        cuda_available=lambda: True,
        look_for=asked.look_for,
    )
    first = next(iter(grid.experiments.values()))
    _check(own, first, asked)
    if own.logical_batch:
        _check_accumulation(own, grid.experiments.values())
    workers = asked.at_a_time(first)

    from dpprof.drive.fit import Fit
    from dpprof.findings.fit import limit_in_words
    from dpprof.pages.fit import page, write_fit

    name, searched = grid.config.sweep_name, grid.experiments
    planned = Fit(name, asked.drive, asked.launcher, searched, own, workers, write_fit)

    with asked.begun(planned, "fit", is_counted=False) as progress:
        count = counted(len(searched), "search", "searches")
        progress.say(f"{planned.name}: {count} {asked.on_fake_tensors(workers)}")
        progress.say(f"what fits needs at most {limit_in_words(first, own)}")
        run(planned, progress)
        if not planned.interrupted:
            progress.show(page(planned.name, planned.answers, own))
            progress.say(f"searched for {progress.duration}; {planned.folder.path}/fit.html has all of it")


def _check_accumulation(own: FitConfig, experiments: Iterable[ExperimentConfig]) -> None:
    """Raise ConfigError if one cannot take a logical batch in several physical ones."""
    for experiment in experiments:
        try:
            dataclasses.replace(experiment, accumulation_steps=ACCUMULATING)
        except ConfigError as error:
            words = f"{own.logical_batch} takes several physical batches; {error}"
            raise ConfigError(f"logical_batch: {words}") from None


def _check(own: FitConfig, experiment: ExperimentConfig, asked: Asked) -> None:
    """Raise ConfigError if the search cannot answer the request."""
    from dpprof.record.figures.capacity import capacity_bytes

    if capacity_bytes(experiment) is None:
        given_gib = experiment.estimating.device_memory_gib
        raise refuse("device_memory_gib", given_gib, "a number above 0, or a GPU by name, as target=H100")
    if own.along == WORLD_SIZE and experiment.parallel != FSDP2:
        raise refuse(
            "parallel", experiment.parallel, f"{FSDP2} with along={WORLD_SIZE}: no other shares memory"
        )
    if own.verify and experiment.parallel != NONE:
        raise refuse("verify", True, "false with several ranks, which are estimated alone")
    if own.logical_batch and experiment.poisson_sampling:
        raise refuse("logical_batch", own.logical_batch, "0 with poisson_sampling=true")
    if own.verify and experiment.device == "cuda" and not asked.launcher.machine.cuda_available():
        raise refuse("verify", True, "false: torch finds no CUDA device on this machine to measure on")
