"""The ledgers of tiny models' steps, and the sizes that they must have."""

from functools import cache
from typing import Any

from example_config import experiment
from example_runs import kept
from torch import nn

from dpprof.config.experiment import ExperimentConfig
from dpprof.config.flat import from_flat, to_flat
from dpprof.measure.passes.account import Account
from dpprof.measure.workloads.workload import build_workload
from dpprof.record.ledger import TrafficRow

CONFIG = experiment(
    model_size="tiny",
    seq_len=48,
    warmup_steps=1,
    measured_steps=1,
    passes="clean,memory,ledger",
    device="cpu",
)
# Standard training and Opacus's three, whose bytes follow from arithmetic.
BUILT_IN = ["StandardTrainer", "DPSGDTrainer", "DPGhostClippingTrainer", "DPFastGradientClippingTrainer"]
FLAT, GHOST, FAST = "DPSGDTrainer", "DPGhostClippingTrainer", "DPFastGradientClippingTrainer"


def resolved(**changes: Any) -> ExperimentConfig:
    return from_flat(to_flat(CONFIG) | changes).resolve(cuda_available=False)


def ledger_of(*, fake: bool = False, **changes: Any) -> tuple[Account, list[TrafficRow]]:
    found = kept(resolved(**changes), is_fake=fake)
    return found.account, found.result.traffic


@cache
def tiny(trainer: str) -> tuple[Account, list[TrafficRow]]:
    return ledger_of(trainer=trainer)


def modules(**changes: Any) -> dict[str, nn.Module]:
    """The modules that have parameters of their own, in the order in which backward reaches them."""
    found = build_workload(resolved(**changes)).model.named_modules()
    return {name: module for name, module in found if list(module.parameters(recurse=False))}


def sizes(**changes: Any) -> list[int]:
    """Bytes of the parameters of each module in fp32."""
    return [4 * sum(p.numel() for p in m.parameters(recurse=False)) for m in modules(**changes).values()]
