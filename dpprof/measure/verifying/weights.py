"""What an ordinary step does to the weights: trainable ones follow `p.grad`, frozen ones stay."""

from collections.abc import Iterator

import torch
from torch import nn

from dpprof.figures.gradient_verdict import FAIL, PASS
from dpprof.measure.gradient_check import WAYS
from dpprof.measure.trainers.build import optimizer_of
from dpprof.measure.trainers.parallel import local
from dpprof.measure.verifying.setting import Setting
from dpprof.record.verify import VerifyCheck

_ROUNDING = 1e-5


def checks(setting: Setting) -> Iterator[VerifyCheck]:
    """With noise and learning rate of the run. If the workload freezes nothing, its first layer is frozen."""
    names, frozen_names, moved = _step(setting, frozen=())
    if moved:
        yield VerifyCheck("weights_moved", FAIL, moved)
    else:
        yield VerifyCheck("weights_moved", PASS, f"{len(names)} of {len(names)} tensors, as p.grad says")
    frozen: tuple[str, ...] = ()
    if not frozen_names:
        frozen = _first_layer(setting.case.workload.model)
        if not frozen:
            return
    try:
        _, frozen_names, fault = _step(setting, frozen=frozen)
    except ValueError as error:
        fault = f"with {', '.join(frozen)} frozen the step fails: {error}"
    said = f"{', '.join(frozen_names[:3])}{' and others' if len(frozen_names) > 3 else ''} stayed"
    yield VerifyCheck("weights_frozen", FAIL if fault else PASS, fault or said)


def _first_layer(model: nn.Module) -> tuple[str, ...]:
    """The parameters of the first layer that has any, if others remain."""
    trainable = {name for name, p in model.named_parameters() if p.requires_grad}
    for path, module in model.named_modules(remove_duplicate=True):
        own = {f"{path}.{name}" for name, _ in module.named_parameters(recurse=False)} & trainable
        if own and own < trainable:
            return tuple(sorted(own))
    return ()


def _step(setting: Setting, frozen: tuple[str, ...]) -> tuple[list[str], list[str], str]:
    """One step: the names of trainable and of frozen parameters, and what is wrong, if anything."""
    case, dtype = setting.case, WAYS[setting.way][1]
    workload = case.copied(dtype)
    for name in frozen:
        workload.model.get_parameter(name).requires_grad_(False)
    trainer = case.trainer(
        setting.way,
        workload,
        setting.max_grad_norm,
        accumulation_steps=1,
        noise_multiplier=setting.noise_multiplier,
    )
    parameters = dict(trainer.model.named_parameters())
    before = {name: local(p.detach()).clone() for name, p in parameters.items()}
    case.gradients(trainer, setting.way, case.moved(dtype)[:1])
    trainable = [name for name, p in parameters.items() if p.requires_grad]
    still = [name for name in parameters if name not in trainable]
    for name in still:
        if not torch.equal(local(parameters[name]), before[name]):
            return trainable, still, f"{name} is frozen, and has moved"
        if parameters[name].grad is not None:
            return trainable, still, f"{name} is frozen, and has a gradient"
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
            return trainable, still, f"{name} did not move"
        if float((now - made.detach()).norm()) > _ROUNDING * max(change, float(made.detach().norm())):
            return trainable, still, f"{name} moved otherwise than the optimizer moves it by p.grad"
    return trainable, still, ""
