"""Checks that the steps moved the right weights: a run whose adapters stand still trains nothing."""

from typing import Any

import torch
from torch import Tensor, nn

from dpprof.config.experiment import ExperimentConfig
from dpprof.errors import WeightsError
from dpprof.measure.observe import Observer
from dpprof.measure.trainers.build import optimizer_of
from dpprof.measure.trainers.parallel import all_local, kind_of, local
from dpprof.measure.trainers.training import Training
from dpprof.record.record import ParameterGroup, Record
from dpprof.vocabulary.formats import listed
from dpprof.vocabulary.parallel import NONE
from dpprof.vocabulary.precision import short_dtype
from dpprof.vocabulary.trainers import trainer_info

# Bits are summed piece by piece, since torch widens what it sums on the CPU.
_PIECE = 2**17
_INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
# Moves of fewer units in the last place count as rounding.
_ROUNDING = 8


def checksums(model: nn.Module) -> dict[str, int]:
    """Sum up the bits of this rank's shards, tied ones once; a parameter without one here is left out."""
    here = all_local((name, parameter.detach()) for name, parameter in model.named_parameters())
    return {name: _checksum(tensor) for name, tensor in here if tensor.numel()}


def hold_to_account(
    before: dict[str, int], training: Training, config: ExperimentConfig, record: Record
) -> None:
    """Record which parameters have moved since, and warn of those whose gradient cannot tell.

    `before` is their checksums then. Raises WeightsError, with names, if a frozen one moved, or a trainable
    one did not or only by noise.
    """
    while training.num_samples[-1:] == [0]:  # the gradient of an empty batch tells nothing
        training.run(1, Observer())
    moved = note_moves(before, training.model, config, record)
    parameters = {name: p for name, p in training.model.named_parameters() if name in moved}
    wrong = [name for name, p in parameters.items() if moved[name] and not p.requires_grad]
    if wrong:
        raise WeightsError(f"{listed(wrong)} should not train and moved: take them out of the optimizer")
    info = trainer_info(config.trainer)
    has_noise = info.is_private and config.noise_multiplier > 0
    still = [name for name, p in parameters.items() if p.requires_grad and not moved[name]]
    unreached = [
        name
        for name in still
        if (gradient := parameters[name].grad) is None or not torch.count_nonzero(local(gradient))
    ]
    if unreached and has_noise:
        raise WeightsError(f"{listed(unreached)} should train and did not move: not even noise was added")
    stuck = [name for name in still if name not in unreached and _should_move(parameters[name], config)]
    if stuck:
        raise WeightsError(
            f"{listed(stuck)} should train and did not move, though the optimizer's step is large "
            "enough: it has copies of the weights, or something puts them back"
        )
    refuse_lost(training, config)
    small = [name for name in still if name not in unreached]
    for names, why in ((unreached, "the loss gives no gradient"), (small, "steps are too small to show")):
        if names:
            record.warnings.append(f"weights that should train did not move, {why}: {listed(names)}")


def note_moves(
    before: dict[str, int], model: nn.Module, config: ExperimentConfig, record: Record
) -> dict[str, bool]:
    """Record which parameters have moved, by their checksums before, and return that by name."""
    moved = {name: total != before.get(name) for name, total in checksums(model).items()}
    record.parameters = parameter_groups(model, config, moved)
    return moved


def refuse_lost(training: Training, config: ExperimentConfig) -> None:
    """Raise WeightsError if only noise moves a weight. Checks private trainers that are not parallel."""
    if not trainer_info(config.trainer).is_private or config.parallel != NONE:
        return
    if lost := training.lost_gradients():
        raise WeightsError(
            f"{listed(lost)} should train, and at most noise moves them: freeze them, or use another trainer"
        )


def parameter_groups(
    model: nn.Module, config: ExperimentConfig, moved: dict[str, bool] | None = None
) -> list[ParameterGroup]:
    """Group parameters by kind, type, trainability and movement, in the model's order; tied ones once."""
    is_private = trainer_info(config.trainer).is_private
    groups: dict[Any, ParameterGroup] = {}
    for name, parameter in model.named_parameters():
        kind, trains, has_moved = _kind(model, name), parameter.requires_grad, (moved or {}).get(name)
        dtype = short_dtype(str(parameter.dtype))
        new = ParameterGroup(kind, 0, 0, trains, trains and is_private, has_moved, dtype)
        group = groups.setdefault((kind, dtype, trains, has_moved), new)
        group.tensors += 1
        group.numbers += parameter.numel()
    return list(groups.values())


def _kind(model: nn.Module, name: str) -> str:
    """Return the parameter's module class and name; for an adapter peft's name instead of the class."""
    path, _, own = name.rpartition(".")
    adapter = next((part for part in path.split(".") if part.startswith("lora_")), None)
    return f"{adapter or kind_of(model.get_submodule(path)).__name__}.{own}"


def _checksum(tensor: Tensor) -> int:
    bits = tensor.reshape(-1).view(_INTEGERS.get(tensor.element_size(), torch.uint8))
    return sum(int(piece.sum(dtype=torch.int64)) for piece in bits.split(_PIECE))


def _should_move(parameter: nn.Parameter, config: ExperimentConfig) -> bool:
    """Tell if the optimizer's first step by the last gradient exceeds rounding."""
    assert parameter.grad is not None, "it has a gradient"
    before = local(parameter.detach())
    moving = nn.Parameter(before.clone())
    moving.grad = local(parameter.grad)
    optimizer, params = optimizer_of(config)
    optimizer([moving], **params).step()
    step = (moving.detach() - before).abs()
    unit = torch.finfo(before.dtype).eps * before.abs()
    return bool((step > _ROUNDING * unit).any())
