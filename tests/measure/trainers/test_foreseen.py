"""What one step without Opacus tells of a model is what Opacus then stumbles on, all of it."""

import pytest
from trap_cases import FAST, FLAT, GHOST, PRIVATE, TRAINED, TRAPS, configured, said

from dpprof.measure.trainers.build import load_trainer
from dpprof.measure.trainers.watched_step import watch_step
from dpprof.measure.workloads.workload import build_workload


def foreseen(workload: str) -> dict[str, list[str]]:
    """What is foreseen of one watched step, for each trainer."""
    config = configured(workload, FLAT)
    built = build_workload(config)
    step = watch_step(built, next(iter(built.batches)), config)
    traps = {trainer: load_trainer(trainer).foresee(step) for trainer in TRAINED}
    return {
        trainer: list(dict.fromkeys(trap.text for trap in found if not trap.is_warning))
        for trainer, found in traps.items()
    }


@pytest.mark.parametrize(
    ("workload", "trapped", "sentence"),
    TRAPS,
    ids=[trap[0] for trap in TRAPS],
)
def test_what_fails_is_foreseen_and_nothing_else(
    workload: str, trapped: tuple[str, ...], sentence: str
) -> None:
    expected = {trainer: [sentence] if trainer in trapped else [] for trainer in TRAINED}
    assert foreseen(workload) == expected


def test_each_layer_that_is_called_again_in_backward_is_named() -> None:
    layers = ("body.layers.0.0", "body.layers.0.2")
    found = foreseen("checkpointed")
    for trainer in PRIVATE:
        assert found[trainer] == [said("recomputed", module=layer) for layer in layers]


FREE = (
    *("positions", "three_dimensions", "frozen", "residual_added", "relu", "rms_norm", "group_norm"),
    *("instance_norm_untracked", "dp_lstm", "dp_gru", "dp_rnn", "dp_attention", "vision", "scaled"),
    *("checkpointed_reentrant", "no_sampler", "dropout", "dropout_by_function", "bag_with_offsets"),
)


@pytest.mark.parametrize("workload", FREE)
def test_nothing_is_foreseen_of_a_model_that_trains(workload: str) -> None:
    assert not any(foreseen(workload).values())


@pytest.mark.parametrize(
    ("workload", "module"),
    [
        ("residual", "body"),
        ("relu_method", "body"),
        ("relu_function", "body"),
        ("loss_in_place", "the workload's loss"),
    ],
)
def test_an_operator_in_place_is_foreseen_with_its_line(workload: str, module: str) -> None:
    (text,) = foreseen(workload)[FLAT]
    assert text.startswith(f"{module} changes a module's output in place (example_trapped.py, line ")


def test_ids_whose_slice_is_not_contiguous() -> None:
    found = foreseen("sliced")
    assert found[GHOST] == [said("not_contiguous", module="body.layers.0")]
    assert found[FLAT] == found[FAST] == []
