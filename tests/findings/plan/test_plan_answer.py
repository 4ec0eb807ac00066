"""A plan in words: what was asked, weak privacy, too few steps, and trainers that are too close to call."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from example_costs import seconds
from example_plans import SAMPLES, fitted, noises_of

from dpprof.config.entry_points import PlanConfig
from dpprof.findings.plan.answer import caveats, question, reason, to_data, weak_privacy
from dpprof.findings.plan.data import Fitted, PlanData
from dpprof.pages import html, markdown
from dpprof.pages.plan import page
from dpprof.record.figures.cost import Affine, PhaseCost, StepCost
from dpprof.vocabulary.trainers import TRAINERS

RESULTS = Path(__file__).parents[3] / "docs" / "results" / "trainers_cpu.md"


def made(**asked: Any) -> PlanData:
    """A plan of one trainer with measured steps."""
    plan = PlanConfig(**{"dataset_size": SAMPLES, "logical_batches": "8,32", "min_steps": 1, **asked})
    return PlanData("plan-example", plan, noises_of(plan), [fitted("bk")], {})


def plan_of(bk: float) -> PlanData:
    """Predicted times of ghost and `bk`, which takes so many times as long."""
    asked = PlanConfig(dataset_size=400, steps=4, logical_batches="32")
    found = []
    for trainer, flops in (("ghost", 1.0), ("bk", bk)):
        one = fitted(trainer, device="cuda", device_memory_gib=0, target="H100")
        cost = StepCost({"forward": PhaseCost(each=seconds(Affine(0.0, 0.1 * flops), 0.9, 1.2))})
        found.append(Fitted(one.config, one.largest, cost))
    return PlanData("plan-example", asked, noises_of(asked), found, {})


def test_every_medium_has_the_question_the_answer_and_each_caveat() -> None:
    weak: dict[str, Any] = {"target_delta": 0.01, "target_epsilon": 25.0, "allow_weak_privacy": True}
    data = made(**weak, logical_batches="32", price_per_device_hour=2.0)
    assert "Epsilon 25 at delta 0.01 for 400 samples; tiny with sequences of 16 in fp32" in question(data)
    one = dataclasses.replace(data.fitted[0], weights_dtype="bf16", unlike=("a/b",))
    short = dataclasses.replace(data, fitted=[one])
    assert " in fp32, weights in bf16, on 1.0 GiB." in question(short)
    assert set(caveats(short)) - set(caveats(data)) == {
        "Measured steps of weights of another type do not count: a/b."
    }
    assert len(weak_privacy(data)) == 2
    assert to_data(data)["caveats"] == [*weak_privacy(data), *caveats(data)]
    assert to_data(data)["reason"] == reason(data)
    for medium in (markdown.render(page(data)), html.page(page(data))):
        for text in (question(data), reason(data), *to_data(data)["caveats"]):
            assert text in medium
        assert "cost" in medium
    assert weak_privacy(made()) == []


def test_too_close_to_call_is_said_with_what_decides() -> None:
    near, clear = plan_of(1.04), plan_of(1.3)
    assert ["too close to call" in reason(found) for found in (near, clear)] == [True, False]
    assert any("--accumulation-steps 1 --trainer bk" in text for text in caveats(near))
    recommended = [to_data(found)["recommended"]["trainer"] for found in (near, clear)]
    assert recommended == ["DPBookKeepingTrainer", "DPGhostClippingTrainer"]
    assert clear.close == []


def test_batches_with_too_few_steps_are_not_recommended_while_others_have_enough() -> None:
    for min_steps, batch_and_steps in ((1, (32, 12)), (20, (8, 50)), (200, (8, 50))):
        found = made(min_steps=min_steps).recommended
        assert found is not None
        assert (found.noise.logical_batch, found.noise.steps) == batch_and_steps
    assert reason(made(min_steps=20)).endswith("a larger batch makes too few steps.")
    assert "No logical batch makes 200 steps, as min_steps asks for." in caveats(made(min_steps=200))
    assert any("fewer than 10 steps" in caveat for caveat in caveats(made(min_steps=10)))
    assert not any("fewer than" in caveat for caveat in caveats(made()))


@pytest.mark.parametrize("trainer", [name for name, info in TRAINERS.items() if info.times_standard])
def test_what_was_measured_elsewhere_is_what_the_results_say(trainer: str) -> None:
    short_name, times = TRAINERS[trainer].short_name, TRAINERS[trainer].times_standard
    small = RESULTS.read_text(encoding="utf-8").split("## ")[1]
    (row,) = [line for line in small.splitlines() if line.startswith(f"| {short_name} ")]
    assert float(row.split("|")[4]) == times
