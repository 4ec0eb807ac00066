"""What a plan begins with: experiments to estimate, and the noise for the budget."""

import dataclasses
from collections.abc import Mapping

from dpprof.config.estimating import EstimatingConfig
from dpprof.config.experiment import ExperimentConfig
from dpprof.config.fit import ACCUMULATING
from dpprof.config.flat import parse_any_trainers, parse_trainers, with_own_options
from dpprof.config.own_options import refuse_untaken, training_options
from dpprof.config.plan import PlanConfig
from dpprof.config.training import TrainingConfig
from dpprof.drive.launch.launcher import Launcher
from dpprof.drive.workload_module import refuse_missing_module
from dpprof.errors import AccountingError, ConfigError
from dpprof.figures.capacity import capacity_bytes, device_of
from dpprof.figures.plan.options import Noise
from dpprof.privacy.accounting import noise_for
from dpprof.privacy.guarantee import RDP, PrivateSteps, default_delta
from dpprof.settings import fields, parse, refuse
from dpprof.vocabulary.parallel import DDP, NONE
from dpprof.vocabulary.trainers import STANDARD, TRAINERS, short_name


def experiments_to_plan(
    asked: PlanConfig, values: Mapping[str, object], launcher: Launcher
) -> tuple[dict[str, ExperimentConfig], dict[str, str]]:
    """A resolved experiment for each trainer, by name, and why others are left out. Raises ConfigError."""
    trainers = [name for name in parse_trainers(asked.trainers) if TRAINERS[name].is_private]
    if not trainers:
        raise refuse("trainers", asked.trainers, "at least one that trains with differential privacy")
    way = str(parse(fields(TrainingConfig)["parallel"], values.get("parallel", NONE)))
    if asked.num_devices > 1 and way == NONE:
        way = DDP
    shared = dict(values) | {"savings": False, "trainer": STANDARD, "batch_size": 1}
    shared |= {"parallel": way, "world_size": asked.num_devices}
    base, options = parse_any_trainers(shared, EstimatingConfig)
    refuse_missing_module(base.workload, launcher=launcher)
    refuse_untaken([*trainers, base.workload], training_options(), options)
    found, left_out = {}, {}
    for name in trainers:
        if way not in TRAINERS[name].parallel:
            left_out[name] = f"it cannot share a model by {way}"
            continue
        try:
            config = with_own_options(dataclasses.replace(base, trainer=name), options)
            config = config.resolve(cuda_available=True)
            dataclasses.replace(config, accumulation_steps=ACCUMULATING)
        except ConfigError as error:
            left_out[name] = str(error)
        else:
            found[config.run_name] = config
    if not found:
        why = "; ".join(f"{short_name(name)}: {text}" for name, text in left_out.items())
        raise ConfigError(f"trainers: none of them can be planned ({why})")
    if asked.efficiencies and device_of(base) is None:
        raise refuse("efficiency", asked.efficiency, "only with a target by name")
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
