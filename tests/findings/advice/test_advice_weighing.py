"""The order of changes, and changes put together, by arithmetic: nothing is estimated."""

from typing import Any

import pytest
from example_costs import step as cost

from dpprof.config.changes import BATCH, LEARNED, SAME, Change
from dpprof.config.estimating import EstimatingConfig
from dpprof.config.experiment import ExperimentConfig
from dpprof.config.flat import parse_experiment
from dpprof.errors import ConfigError
from dpprof.findings.advice.weighing import (
    FASTER,
    HELPS,
    NOTHING,
    SMALLER,
    SUFFICES,
    TOO_LARGE,
    Combining,
    Weighed,
    Weighing,
)
from dpprof.record.figures.step import LogicalStep

CONFIG = parse_experiment(
    {"trainer": "flat", "model_size": "tiny", "device": "cpu", "batch_size": 8}, EstimatingConfig
).resolve(cuda_available=True)
GHOST = Change("ghost", "trainer", {"trainer": "DPGhostClippingTrainer"})
BK = Change("bk", "trainer", {"trainer": "DPBookKeepingTrainer"})
CHECKPOINTS = Change("checkpointing", "checkpointing", {"activation_checkpointing": True})
LEAN = Change("lean", "loop", {"loop": "lean"})
LORA = Change("LoRA", "train", {"train": "lora"}, LEARNED)


def weighed(name: str, *figures: Any, alters: str = SAME) -> Weighed:
    return Weighed((Change(name, name, {}, alters),), cost(*figures))


def told(advice: Weighing) -> list[tuple[str, str]]:
    return [(one.name, advice.verdict(one)) for one in advice.ordered]


def test_what_suffices_comes_first_by_time_then_what_helps_by_bytes_then_what_alters() -> None:
    alone = [
        weighed("helps a little", 900, 0.1),
        weighed("helps", 600, 9.0),
        weighed("slow", 100, 3.0),
        weighed("fast", 500, 2.0),
        weighed("other", 50, 0.1, alters=LEARNED),
        weighed("useless", 1000, 0.1),
    ]
    advice = Weighing(cost(1000), 500, alone)
    assert not advice.fits
    assert told(advice) == [
        ("fast", SUFFICES),
        ("slow", SUFFICES),
        ("helps", HELPS),
        ("helps a little", HELPS),
        ("other", SUFFICES),
    ]
    assert [one.name for one in advice.others] == ["useless"]
    assert advice.verdict(advice.others[0]) == NOTHING
    assert advice.best is not None
    assert advice.best.name == "fast"
    assert [one.name for one in (*advice.ordered, *advice.others)][-2:] == ["other", "useless"]
    assert Weighing(cost(1000), 500, [weighed("other", 50, 0.1, alters=LEARNED)]).best is None


def test_what_fits_is_made_faster_then_smaller() -> None:
    alone = [
        weighed("small", 10, 1.5),
        weighed("smaller", 5, 1.0),
        weighed("fast", 400, 0.9),
        weighed("fastest", 300, 0.5),
        weighed("too large", 600, 0.1),
        weighed("other", 1, 0.1, alters=LEARNED),
    ]
    advice = Weighing(cost(400), 500, alone)
    assert told(advice) == [
        ("fastest", FASTER),
        ("fast", FASTER),
        ("smaller", SMALLER),
        ("small", SMALLER),
        ("other", FASTER),
    ]
    assert advice.verdict(advice.others[0]) == TOO_LARGE


def test_without_rates_flops_decide_then_bytes_moved() -> None:
    alone = [
        weighed("more FLOPs", 10, None, 120, 1),
        weighed("fewer bytes", 10, None, 100, 50),
        weighed("more bytes", 10, None, 100, 150),
        weighed("fewer FLOPs", 10, None, 90, 900),
    ]
    lacking = Weighing(cost(1000, None), 500, alone)
    names = ["fewer FLOPs", "fewer bytes", "more bytes", "more FLOPs"]
    assert [one.name for one in lacking.ordered] == names
    fitting = Weighing(cost(10, None), None, alone)
    assert fitting.fits
    assert told(fitting) == [("fewer FLOPs", FASTER), ("fewer bytes", FASTER)]


def test_a_batch_becomes_smaller_until_it_fits() -> None:
    def estimate(config: ExperimentConfig) -> LogicalStep:
        return cost(100 * config.batch_size)

    found = Combining(CONFIG, estimate, 200).smaller_batch()
    assert found is not None
    assert found.options == "--batch-size 2 --accumulation-steps 4"
    assert found.cost.needed == 200
    assert Combining(CONFIG, estimate, None).smaller_batch() == Weighed(
        (Change(f"{BATCH} 4", BATCH, {"batch_size": 4, "accumulation_steps": 2}),), cost(400)
    )
    least = Combining(CONFIG, estimate, 50).smaller_batch()
    assert least is not None
    assert least.options == "--batch-size 1 --accumulation-steps 8"
    assert Combining(CONFIG, lambda config: None, 50).smaller_batch() is None
    with pytest.raises(ConfigError, match="one sample"):
        Combining(parse_experiment({"batch_size": 1}, EstimatingConfig), estimate, 1).smaller_batch()


def needs(config: ExperimentConfig) -> LogicalStep:
    """1000 bytes for a batch of eight, of which changes take off a part."""
    fixed = 100 if config.train == "lora" else 200
    per_sample = {"DPSGDTrainer": 100, "DPGhostClippingTrainer": 80, "DPBookKeepingTrainer": 60}
    a_sample = per_sample[config.trainer] - 20 * config.activation_checkpointing
    return cost(fixed + config.batch_size * a_sample)


def combined(limit: int, *changes: Change) -> Weighed | None:
    return Combining(CONFIG, needs, limit).together(needs(CONFIG), changes)


@pytest.mark.parametrize(
    ("limit", "changes", "name", "needed", "alters"),
    [
        # One trainer, and the loop saves nothing.
        (550, (BK, GHOST, LEAN, CHECKPOINTS, LORA), "bk and checkpointing", 200 + 8 * 40, SAME),
        # The batch comes last, and is only as small as needed.
        (400, (BK, CHECKPOINTS, LORA), f"bk, checkpointing and {BATCH} 4", 200 + 4 * 40, SAME),
        # Adapters come last of what is put together: nothing that learns the same fits.
        (230, (BK, LORA, CHECKPOINTS), f"bk, checkpointing, LoRA and {BATCH} 2", 100 + 2 * 40, LEARNED),
    ],
)
def test_changes_are_put_together_until_they_fit(
    limit: int, changes: tuple[Change, ...], name: str, needed: int, alters: str
) -> None:
    found = combined(limit, *changes)
    assert found is not None
    assert (found.name, found.cost.needed, found.alters) == (name, needed, alters)


def test_what_comes_nearest_is_told_if_nothing_fits() -> None:
    found = combined(50, BK, CHECKPOINTS)
    assert found is not None
    assert found.cost.needed == 200 + 40
    assert Combining(CONFIG, lambda config: cost(1), 0).together(cost(1), [LEAN]) is None
