"""What a plan begins with: experiments to estimate, the noise for the budget, and measured runs."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from dpprof.config.estimating import EstimatingConfig
from dpprof.config.experiment import ExperimentConfig
from dpprof.config.flat import parse_any_trainers, with_own_options
from dpprof.config.own_options import refuse_untaken, training_options
from dpprof.config.plan import PlanConfig
from dpprof.config.training import TrainingConfig
from dpprof.drive.launch.launcher import Launcher
from dpprof.drive.workload_module import refuse_missing_module
from dpprof.errors import AccountingError, ConfigError, DpprofError
from dpprof.figures.capacity import capacity_bytes
from dpprof.figures.plan.options import Noise
from dpprof.figures.results import FINISHED, Result, read_result
from dpprof.privacy.accounting import noise_for
from dpprof.privacy.guarantee import RDP, PrivateSteps, default_delta
from dpprof.record.folder import SweepFolder
from dpprof.settings import fields, parse, refuse
from dpprof.vocabulary.parallel import DDP, NONE
from dpprof.vocabulary.trainers import TRAINERS, short_name, trainers_named

# What two experiments may differ in, if the steps of one tell about the other.
_FREE = ("trainer", "batch_size", "accumulation_steps", "noise_multiplier", "max_grad_norm", "seed", "lr")


def experiments_to_plan(
    asked: PlanConfig, values: Mapping[str, object], launcher: Launcher
) -> tuple[dict[str, ExperimentConfig], dict[str, str]]:
    """A resolved experiment for each trainer, by name, and why others are left out. Raises ConfigError."""
    try:
        trainers = [parse(fields(TrainingConfig)["trainer"], name) for name in trainers_named(asked.trainers)]
    except ConfigError as error:
        raise ConfigError(f"trainers: {error}") from None
    way = str(values.get("parallel", NONE))
    if asked.num_devices > 1 and way == NONE:
        way = DDP
    trainers = [name for name in dict.fromkeys(trainers) if TRAINERS[name].is_private]
    able = [name for name in trainers if way in TRAINERS[name].parallel]
    left_out = {name: f"it cannot share a model by {way}" for name in trainers if name not in able}
    if not trainers:
        raise refuse("trainers", asked.trainers, "at least one that trains with differential privacy")
    if not able:
        raise refuse("parallel", way, f"what one of {', '.join(map(short_name, trainers))} can do")
    shared = dict(values) | {"savings": False, "trainer": able[0], "batch_size": 1}
    shared |= {"parallel": way, "world_size": asked.num_devices}
    base, options = parse_any_trainers(shared, EstimatingConfig)
    refuse_missing_module(base.workload, launcher=launcher)
    refuse_untaken([*able, base.workload], training_options(), options)
    found = {}
    for name in able:
        config = with_own_options(dataclasses.replace(base, trainer=name), options)
        config = config.resolve(cuda_available=True)
        found[config.run_name] = config
    if capacity_bytes(next(iter(found.values()))) is None:
        given_gib = base.estimating.device_memory_gib
        raise refuse("device_memory_gib", given_gib, "a number above 0, or a target by name")
    return found, left_out


def noises(asked: PlanConfig) -> list[Noise]:
    """The noise for each logical batch. Raises AccountingError if no accountant answers."""
    delta = asked.target_delta or default_delta(asked.dataset_size)
    found = []
    for batch in asked.batches:
        rate, num_steps = batch / asked.dataset_size, asked.num_steps(batch)
        steps = PrivateSteps(rate, num_steps, delta)
        guarantee = noise_for(asked.target_epsilon, steps)
        by_rdp, why_not = None, ""
        try:
            by_rdp = noise_for(asked.target_epsilon, steps, RDP)
        except AccountingError as error:
            why_not = str(error)
        found.append(Noise(batch, rate, num_steps, rate * num_steps, guarantee, by_rdp, why_not))
    return found


def measured_runs(
    asked: PlanConfig,
    experiments: Mapping[str, ExperimentConfig],
    own: SweepFolder,
    warn: Callable[[str], None],
) -> list[Result]:
    """Finished runs whose steps tell about the plan's: those that are named, else those beside its folder.

    A plan for a GPU by name takes runs on that GPU alone. Raises ConfigError if those named do not exist, or
    tell nothing.
    """
    config = next(iter(experiments.values()))
    if not asked.measured:
        results = [
            found for folder in sorted(own.path.parent.glob("*")) for found in _in(SweepFolder(folder))
        ]
        return [result for result in results if tells(result, config)]
    with TemporaryDirectory(prefix="dpprof-") as into:
        found = [result for result in _named(asked.measured, Path(into), warn) if tells(result, config)]
    if not found:
        raise refuse("measured", asked.measured, "what holds finished runs of this model on this device")
    return found


def _in(sweep: SweepFolder) -> list[Result]:
    found = []
    for folder in sweep.runs():
        try:
            if folder.record.exists() and not folder.read_config().is_estimate:
                found.append(read_result(folder))
        except DpprofError:  # of another version
            continue
    return found


def _named(name: str, into: Path, warn: Callable[[str], None]) -> list[Result]:
    from dpprof.drive.sources import read_comparison

    _, folders = read_comparison([name], into, warn, "measured")
    return [read_result(folder) for folder in folders.values()]


def tells(result: Result, config: ExperimentConfig) -> bool:
    """Whether a finished run trained what a plan is about, on its device."""
    if result.status != FINISHED or result.record is None or not result.record.step_s:
        return False
    other = result.config
    if other.is_estimate or other.device != config.device or other.poisson_sampling:
        return False
    if other.accumulation_steps != 1:
        return False
    ranks = ("parallel", "world_size")
    own = {name: getattr(config, name) for name in fields(TrainingConfig) if name not in (*_FREE, *ranks)}
    if any(getattr(other, name) != value for name, value in own.items()):
        return False
    if other.parallel != NONE and any(getattr(other, name) != getattr(config, name) for name in ranks):
        return False
    target = config.estimating.target.partition("-")[0]
    return config.device == "cpu" or (target != "none" and target in result.record.environment.get("gpu", ""))
