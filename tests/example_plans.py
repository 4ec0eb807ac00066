"""Plans made without an estimate: every trainer with a tiny model, few steps and small batches."""

import json
from collections.abc import Sequence
from functools import cache
from typing import Any

from dpprof.config.entry_points import PlanConfig
from dpprof.config.estimating import EstimatingConfig
from dpprof.config.flat import parse_experiment
from dpprof.drive.plan import noises
from dpprof.findings.plan.answer import to_data
from dpprof.findings.plan.data import BatchNoise, Fitted, PlanData
from dpprof.findings.plan.timing import MeasuredSteps
from dpprof.privacy.guarantee import PRV, Guarantee
from dpprof.record.figures.cost import Affine, PhaseCost, StepCost
from dpprof.vocabulary.trainers import TRAINERS

MODEL = {"model_size": "tiny", "seq_len": 16, "device": "cpu", "device_memory_gib": 1, "max_grad_norm": 0.5}
STEPS, BATCH, PHYSICAL, SAMPLES = 4, 32, 8, 400
LINE = Affine(0.0, 1.0)
COST = StepCost({"forward": PhaseCost(each={"moved": LINE, "flops": LINE})})
MEASURED = MeasuredSteps(((1, {"forward": 1.0}), (PHYSICAL, {"forward": 1.0})), ("run",), has_ranks=False)

# What the accountant answered for the budget of all plans of `of_every_trainer`, which saves its search.
EARLIER = [
    Guarantee(PRV, noise_multiplier, epsilon, 1e-4, batch / SAMPLES, STEPS)
    for batch, noise_multiplier, epsilon in (
        (BATCH, 0.45820866761578777, 7.99839362136262),
        (2 * BATCH, 0.542458374921709, 7.995622958769174),
    )
]


def fitted(trainer: str, **changes: Any) -> Fitted:
    """A trainer that holds physical batches of eight. As many samples take as long by each."""
    values = MODEL | {"trainer": trainer, "savings": False} | changes
    config = parse_experiment(values, EstimatingConfig).resolve(cuda_available=False)
    if config.trainer == "DPBookKeepingTrainer":
        return Fitted(config, PHYSICAL, MEASURED.cost(config, COST), MEASURED)
    return Fitted(config, PHYSICAL, COST)


@cache
def _noises(batches: tuple[int, ...], **budget: Any) -> Sequence[BatchNoise]:
    return tuple(noises(PlanConfig(**budget), batches, EARLIER))


def noises_of(asked: PlanConfig) -> Sequence[BatchNoise]:
    """The noise for each logical batch, found once for all plans of one budget, as that takes seconds."""
    names = ("dataset_size", "epochs", "steps", "target_epsilon", "target_delta")
    return _noises(asked.batches, **{name: getattr(asked, name) for name in names})


def plan_of(trainers: tuple[str, ...], asked: PlanConfig, **changes: Any) -> dict[str, Any]:
    """What `plan.json` holds of a plan with these trainers."""
    made = PlanData("plan-example", asked, noises_of(asked), [fitted(t, **changes) for t in trainers], {})
    data: dict[str, Any] = json.loads(json.dumps(to_data(made)))
    return data


@cache
def _of_every_trainer() -> str:
    asked = PlanConfig(dataset_size=SAMPLES, steps=STEPS, logical_batches=f"{BATCH},64", trainers="every")
    return json.dumps(plan_of(tuple(info.name for info in TRAINERS.values() if info.is_private), asked))


def of_every_trainer() -> dict[str, Any]:
    """That of all trainers, which recommends `bk`: the only one with measured steps."""
    data: dict[str, Any] = json.loads(_of_every_trainer())
    return data
