"""Verifies a trainer: its gradient, its noise, its sensitivity to one sample, and the weights it trains.

`record/figures/verdicts.py` judges the findings; `vocabulary/verify_checks.py` lists the checks.
"""

import traceback
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import nn

from dpprof.config.experiment import ExperimentConfig
from dpprof.errors import describe_error
from dpprof.measure.gradient_check import Case, Undecidable, Wrong, switch_dropout_off
from dpprof.measure.passes.subject import Subject
from dpprof.measure.trainers.build import optimizer_of
from dpprof.measure.trainers.parallel import local
from dpprof.measure.verifying import gradients, noise, sensitivity
from dpprof.record.figures.verdicts import FAIL, PASS
from dpprof.record.record import VerifyCheck, VerifyResult
from dpprof.vocabulary.messages import is_oom
from dpprof.vocabulary.parallel import NONE
from dpprof.vocabulary.trainers import trainer_info

# Minimum share of clipped samples.
_CLIPPED = 0.75
# Largest relative difference between a weight and what the optimizer makes of it.
_ROUNDING = 1e-5


def run(subject: Subject) -> None:
    """Verify the experiment's trainer and put the result into the record."""
    subject.record.verify = verify_trainer(subject.config)


def verify_trainer(config: ExperimentConfig) -> VerifyResult:
    """Run all checks that apply to the experiment's trainer, on its workload."""
    for limit in trainer_info(config.trainer).limits:
        if limit.setting == "accumulation_steps":
            return VerifyResult(doubt=f"verifying accumulates physical batches, but {limit.why}")
    case = Case(config, max(2, config.accumulation_steps))
    found = VerifyResult(dropout_off=switch_dropout_off(case.workload.model))
    try:
        case.computed_in = case.probe()
        case.per_sample = case.per_sample_gradients(share=_CLIPPED)
    except Undecidable as why:
        found.doubt = str(why)
        return found
    except Wrong as what:
        found.checks.append(VerifyCheck("gradient_float64", FAIL, str(what)))
        return found
    found.max_grad_norm = case.max_grad_norm
    add = partial(_add, found, config.parallel)
    add("gradient_float64", lambda: gradients.checks(case))
    if case.is_private:
        add("gradient_as_many_samples", lambda: gradients.checks_of_shared_rows(case, _CLIPPED))
        add("noise_deviation", lambda: noise.checks(case, found))
        if config.parallel == NONE:  # each rank clips its own samples, as one alone does
            add("sensitivity_ordinary", lambda: sensitivity.checks(case))
    add("weights_moved", lambda: _of_weights(case))
    return found


def _add(found: VerifyResult, parallel: str, first: str, checks: Callable[[], Iterator[VerifyCheck]]) -> None:
    """Add the checks. An error fails `first`; with several ranks it is raised, or the others would wait."""
    try:
        found.checks += checks()
    except Exception as error:
        if parallel != NONE or is_oom(error):
            raise
        if isinstance(error, Undecidable):
            found.doubt = found.doubt or str(error)
            return
        traceback.print_exc()
        found.checks.append(VerifyCheck(first, FAIL, f"the step failed: {describe_error(error)[:300]}"))


def _of_weights(case: Case) -> Iterator[VerifyCheck]:
    """Check with the run's noise and learning rate. If nothing is frozen, freeze the first layer too."""
    fault, count = _fault_of_step(case, frozen=()), len(case.names)
    said = f"{count} of {count} tensors, as p.grad says"
    yield VerifyCheck("weights_moved", FAIL if fault else PASS, fault or said)
    model = case.workload.model
    frozen = _first_layer(model) if all(p.requires_grad for p in model.parameters()) else ()
    stay = [name for name, _ in model.named_parameters() if name in frozen or name not in case.names]
    if not stay:
        return
    try:
        fault = _fault_of_step(case, frozen)
    except ValueError as error:
        fault = f"with {', '.join(frozen)} frozen the step fails: {error}"
    said = f"{', '.join(stay[:3])}{' and others' if len(stay) > 3 else ''} stayed"
    yield VerifyCheck("weights_frozen", FAIL if fault else PASS, fault or said)


def _first_layer(model: nn.Module) -> tuple[str, ...]:
    """Return the parameters of the first layer that has any, if others remain."""
    trainable = {name for name, p in model.named_parameters() if p.requires_grad}
    for path, module in model.named_modules(remove_duplicate=True):
        own = {f"{path}.{name}" for name, _ in module.named_parameters(recurse=False)} & trainable
        if own and own < trainable:
            return tuple(sorted(own))
    return ()


def _fault_of_step(case: Case, frozen: tuple[str, ...]) -> str:
    """Do one step with some parameters frozen. Returns what is wrong with the weights, if anything."""
    workload = case.copied(case.way)
    for name in frozen:
        workload.model.get_parameter(name).requires_grad_(False)
    settings = {"accumulation_steps": 1, "noise_multiplier": case.noise_multiplier}
    trainer = case.trainer(case.way, workload, **settings)
    parameters = dict(trainer.model.named_parameters())
    before = {name: local(p.detach()).clone() for name, p in parameters.items()}
    case.gradients(trainer, case.way, case.moved(case.way)[:1])
    for name, parameter in parameters.items():
        if not parameter.requires_grad and not torch.equal(local(parameter), before[name]):
            return f"{name} is frozen, and has moved"
        if not parameter.requires_grad and parameter.grad is not None:
            return f"{name} is frozen, and has a gradient"
    trainable = [name for name, p in parameters.items() if p.requires_grad]
    expected = [nn.Parameter(before[name].clone()) for name in trainable]
    for made, name in zip(expected, trainable, strict=True):
        gradient = parameters[name].grad
        made.grad = None if gradient is None else local(gradient)
    optimizer, params = optimizer_of(case.config)
    optimizer(expected, **params).step()
    for made, name in zip(expected, trainable, strict=True):
        now = local(parameters[name].detach())
        change = float((made.detach() - before[name]).norm())
        if change and torch.equal(now, before[name]):
            return f"{name} did not move"
        if float((now - made.detach()).norm()) > _ROUNDING * max(change, float(made.detach().norm())):
            return f"{name} moved otherwise than the optimizer moves it by p.grad"
    return ""
