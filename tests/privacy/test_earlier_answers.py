"""An earlier answer saves the search for the noise, but never decides how much noise there is."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from example_plans import of_every_trainer

from dpprof.errors import AccountingError
from dpprof.findings.plan.reading import earlier_guarantees
from dpprof.privacy import accounting
from dpprof.privacy.accounting import noise_for
from dpprof.privacy.guarantee import Guarantee, PrivateSteps
from dpprof.privacy.prv import prv_epsilon

STEPS, EPSILON = PrivateSteps(0.01, 50, 1e-6), 4.0


@pytest.fixture(scope="module")
def answer() -> Guarantee:
    return noise_for(EPSILON, STEPS)


def test_it_is_given_again_without_a_search(answer: Guarantee, monkeypatch: pytest.MonkeyPatch) -> None:
    others = [noise_for(2.0, STEPS), noise_for(EPSILON, PrivateSteps(0.01, 51, 1e-6))]
    monkeypatch.delattr(accounting, "_noise_by_prv")
    assert noise_for(EPSILON, STEPS, [*others, answer]) == answer


FALSE: list[dict[str, Any]] = [
    {"noise_multiplier": 0.9},
    {"noise_multiplier": 0.9, "epsilon": EPSILON},
    {"epsilon": EPSILON * 0.9999},
    {"epsilon": EPSILON * 1.01},
    {"epsilon": math.nan},
    *({"noise_multiplier": noise} for noise in (0.0, -1.0, 1e-300, 1e300, math.nan, math.inf)),
    {"sample_rate": 0.02},
    {"steps": 51},
    {"delta": 1e-5},
]


@pytest.mark.parametrize("changes", FALSE)
def test_a_false_one_is_not_believed(answer: Guarantee, changes: dict[str, Any]) -> None:
    false = dataclasses.replace(answer, **changes)
    assert noise_for(EPSILON, STEPS, [false]) == answer


@pytest.mark.parametrize("times", [1.05, 0.95])
def test_one_with_too_much_noise_or_too_little_is_not_taken(answer: Guarantee, times: float) -> None:
    """Though it is true."""
    noise = times * answer.noise_multiplier
    error = accounting._fine_error(noise, STEPS, EPSILON)
    true = dataclasses.replace(answer, noise_multiplier=noise, epsilon=prv_epsilon(noise, STEPS, error))
    assert noise_for(EPSILON, STEPS, [true]) == answer


def test_one_that_opacus_fails_on_is_not_taken(answer: Guarantee, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounting, "prv_epsilon", Mock(side_effect=AccountingError("PRV failed")))
    assert noise_for(EPSILON, STEPS, [answer]).accountant == "rdp"


def test_plans_in_a_folder_tell_them(tmp_path: Path, answer: Guarantee) -> None:
    plan = of_every_trainer()
    noise = plan["noises"][0] | {"guarantee": dataclasses.asdict(answer)}
    kept: list[Any] = [plan, {"noises": [noise]}, [], {"noises": 1}]
    kept.append({"noises": [{}, {"guarantee": {"accountant": "prv"}}]})
    for number, content in enumerate([*map(json.dumps, kept), "{"]):
        (tmp_path / f"plan-{number}").mkdir()
        (tmp_path / f"plan-{number}" / "plan.json").write_text(content)
    (tmp_path / "plan-7" / "plan.json").mkdir(parents=True)
    told = earlier_guarantees(tmp_path)
    assert told[0] == answer
    assert [dataclasses.asdict(one) for one in told[1:]] == [one["guarantee"] for one in plan["noises"]]
    assert earlier_guarantees(tmp_path / "nowhere") == []
