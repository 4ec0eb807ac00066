"""Costs of logical steps from estimates, and what two changes would save, by arithmetic."""

import dataclasses

import pytest
from example_estimates import estimate
from example_ledger import MIB

from dpprof.findings.advice.arithmetic import by_arithmetic, peak_with
from dpprof.findings.advice.weighing import batches_to_estimate, cost_of
from dpprof.record.figures.results import Result
from dpprof.record.ledger import (
    Doubt,
    HeldTensor,
    LedgerResult,
    Segments,
    StepTimeline,
)

NOISE, GRADIENT, SUM = "noise", "gradients", "summed_gradients"


def ledger_of(result: Result) -> LedgerResult:
    assert result.record is not None
    assert result.record.ledger is not None
    return result.record.ledger


def test_few_physical_batches_are_estimated_as_they_are() -> None:
    assert [batches_to_estimate(number) for number in (1, 4, 5, 64)] == [(1,), (4,), (2, 3), (2, 3)]


def test_doubts_are_added_and_those_without_a_bound_give_no_cost() -> None:
    made = estimate()
    before = cost_of(made.config, [made])
    ledger_of(made).doubts = [Doubt("a", "b", 5 * MIB)]
    after = cost_of(made.config, [made])
    assert before is not None
    assert after is not None
    assert after.needed == before.needed + 5 * MIB
    assert after.seconds == pytest.approx(2e-3)
    ledger_of(made).doubts = [Doubt("a", "b", None)]
    assert cost_of(made.config, [made]) is None


def held(category: str, num_bytes: int, shape: list[int], phase: str | None = None) -> HeldTensor:
    return HeldTensor(num_bytes, category, shape, "torch.float32", "", "", phase, "aten::add")


def timeline(*births: HeldTensor, present: int = 0) -> StepTimeline:
    """Storages that are born one after the other and stay, after `present` that were there."""
    born = births[present:]
    return StepTimeline(
        start={},
        seconds=[0.0] * len(born),
        category=[each.category for each in born],
        num_bytes=[each.num_bytes for each in born],
        moved_to=[None] * len(born),
        phases=[],
        step_s=1.0,
        peak_event=len(born) - 1,
        storages=list(births),
        storage_index=list(range(present, len(births))),
        num_present=present,
    )


def test_a_peak_with_a_share_of_some_storages() -> None:
    lives = timeline(held(SUM, 100, []), held(NOISE, 40, []), held(GRADIENT, 60, []), present=1)
    lives.seconds.append(0.0)
    lives.category.append(NOISE)
    lives.num_bytes.append(-40)
    lives.moved_to.append(None)
    lives.storage_index.append(1)
    assert peak_with(lives, lambda each: 1.0) == 200
    assert peak_with(lives, lambda each: 0.5 if each.category == NOISE else 1.0) == 180
    assert peak_with(lives, lambda each: 0.0) == 0


def test_noise_in_place_needs_a_buffer_and_no_gradient_beside_the_sum() -> None:
    buffer = 4 * 2**24
    sums = held(SUM, 4 * buffer, [], "clip")
    lives = timeline(
        sums, held(NOISE, 4 * buffer, [], NOISE), held(GRADIENT, 4 * buffer, [], NOISE), present=1
    )
    made = estimate(workload="example_workloads:mlp", model_size="auto")
    (found,) = by_arithmetic(made.config, ledger_of(made), lives)
    assert (found.name, found.saved, found.flops) == ("noise in place", 7 * buffer, 0)
    own = dataclasses.replace(made.config, trainer="DPBookKeepingTrainer")
    assert by_arithmetic(own, ledger_of(made), lives) == []


@pytest.mark.parametrize(("expandable", "saved"), [(150, [40 * MIB]), (200, [])])
def test_expandable_segments_are_named_where_they_take_less(expandable: int, saved: list[int]) -> None:
    made = estimate(workload="example_workloads:mlp", model_size="auto", trainer="StandardTrainer")
    ledger = ledger_of(made)
    ledger.segments = Segments(reserved=200 * MIB, least=190 * MIB, expandable=expandable * MIB)
    found = by_arithmetic(made.config, ledger, timeline(held(SUM, 100, [])))
    assert [one.saved for one in found if one.name == "expandable segments"] == saved


def test_a_chunked_vocabulary_keeps_one_sample_of_what_lies_before_the_loss() -> None:
    made = estimate(trainer="StandardTrainer", batch_size=4, seq_len=8, accumulation_steps=2)
    vocab, width = made.config.vocab_size, made.config.hidden_dim
    numbers = 4 * 8 * vocab
    logits = held("outputs", 4 * numbers, [4, 8, vocab], "forward")
    lives = timeline(
        logits,
        held("activations", 4 * numbers, [32, vocab], "forward"),
        held("output_gradients", 4 * numbers, [32, vocab], "backward"),
        held("per_sample_gradients", 4 * numbers, [4, 8 * vocab], "backward"),
        held("parameters", 4 * vocab, [vocab]),
    )
    (found,) = by_arithmetic(made.config, ledger_of(made), lives)
    assert found.saved == 2 * 4 * numbers * 3 // 4
    assert found.flops == 2 * 2 * numbers * width  # one backward, two physical batches
    one = dataclasses.replace(made.config, batch_size=1)
    assert by_arithmetic(one, ledger_of(made), lives) == []
