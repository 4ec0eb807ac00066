"""What opens the comparison page: the tiles and the first finding."""

import re
from collections.abc import Sequence

import pytest
from example_findings import FLAT, GHOST, OOM, STANDARD
from example_results import comparison, result

from dpprof.findings.verdict.finding import Finding
from dpprof.pages.comparison.data import compute
from dpprof.pages.comparison.page import Tiles, advice, render, tiles_of
from dpprof.record.figures.results import Result
from dpprof.vocabulary.colors import CATEGORY_COLORS
from dpprof.vocabulary.phases import PHASES
from dpprof.vocabulary.trainers import DEFAULT_TRAINERS


def tiles(*results: Result) -> Tiles:
    found = tiles_of(compute(comparison(*results)))
    assert found is not None
    return found


def batches(found: Tiles) -> dict[str, str]:
    return {tile.row.cell.trainer: tile.largest_batch for tile in found.tiles}


def series(trainer: str, sizes: Sequence[int], step_s: float = 0.1, **more: float) -> list[Result]:
    return [
        result(trainer, step_s=step_s * size, peak_mib=10 * size, batch_size=size, **more)  # type: ignore[arg-type]
        for size in sizes
    ]


def test_figures_hold_at_the_largest_place_where_most_finished() -> None:
    failed = result("DPSGDTrainer", step_s=0.1, outcomes={}, failure=OOM, batch_size=8)
    found = tiles(*series("StandardTrainer", [2, 4, 8]), *series("DPSGDTrainer", [2, 4], 0.3), failed)
    assert found.place.name == "batch 4, sequence 512"
    (standard, flat) = (tile.row.bars for tile in found.tiles)
    assert (standard["peak_memory"].total, flat["step_time"].ratio) == (40, 3)
    assert found.longest["step_time"] == flat["step_time"].total
    assert found.has_ratios


def test_where_memory_ran_out_the_batches_that_were_tried_are_told() -> None:
    failed = [
        result(trainer, step_s=0.1, outcomes={}, failure=OOM, batch_size=size)
        for trainer, size in (("DPSGDTrainer", 8), ("DPFastGradientClippingTrainer", 4))
    ]
    found = tiles(*series("StandardTrainer", [4, 8]), *series("DPSGDTrainer", [4]), *failed)
    assert batches(found) == {
        "StandardTrainer": "8 or more",
        "DPSGDTrainer": "4; 8 runs out",
        "DPFastGradientClippingTrainer": "below 4",
    }
    assert "of those tried" in found.note


@pytest.mark.parametrize("models", [("tiny",), ("tiny", "small")])
def test_else_lines_through_the_peaks_of_the_model_are_extended(models: tuple[str, ...]) -> None:
    """Backward takes 10 MiB a sample of the device's 100, twice as much with the other trainer; `small`, five
    times as heavy, reaches the limit first and says nothing of `tiny`.
    """
    found = tiles(
        *(
            result(
                trainer,
                step_s=0.1,
                peak_mib=mib * size,
                at_peak={"activations": mib * size},
                batch_size=size,
                model_size=model,
                environment={"memory_gib": str(100 / 1024)},
            )
            for model, heavier in zip(models, (1, 5), strict=False)
            for trainer, mib in (("DPSGDTrainer", 20 * heavier), ("DPGhostClippingTrainer", 10 * heavier))
            for size in (2, 4)
        )
    )
    assert found.model.label == "tiny"
    assert batches(found) == {"DPSGDTrainer": "at most about 5", "DPGhostClippingTrainer": "at most about 10"}
    assert "for tiny, sequence 512" in found.note
    assert "100.0 MiB" in found.note
    assert "not measured" in found.note


def test_a_place_without_others_has_a_tile_and_one_where_nothing_finished_none() -> None:
    assert tiles_of(compute(comparison())) is None
    assert tiles_of(compute(comparison(result(failure=OOM)))) is None
    found = tiles(result("DPSGDTrainer", step_s=0.1, peak_mib=3))
    assert (len(found.tiles), found.has_ratios, found.note) == (1, False, "")


STEPS = [0.1] * 9


def shown(*results: Result) -> str:
    return render(compute(comparison(*results)))


def finished(trainer: str) -> Result:
    return result(trainer, step_s=STEPS, peak_mib=40, at_peak={"parameters": 40})


def test_a_sweep_of_24_cells_leaves_room_for_its_timelines() -> None:
    """Of the 500 kB that a page may have."""
    cells = [
        result(
            trainer,
            step_s=STEPS,
            peak_mib=50,
            at_peak=dict.fromkeys(CATEGORY_COLORS, 1.0),
            phase_ms=dict.fromkeys(PHASES, 1.0),
            moved=[(name, "copy", 1.0) for name in PHASES],
            batch_size=batch,
            seq_len=seq_len,
        )
        for trainer in DEFAULT_TRAINERS
        for batch in (2, 4)
        for seq_len in (64, 128)
    ]
    assert len(shown(*cells).encode()) < 250_000


def test_the_page_opens_with_one_sentence_and_the_numbers() -> None:
    page = shown(*map(finished, (STANDARD, FLAT, GHOST)))
    places = [page.index(f'id="{name}"') for name in ("advice", "tiles", "scatter", "filters", "verdict")]
    assert places == sorted(places)
    text = " ".join(re.sub(r"<[^>]*>", " ", page).split())
    assert text.index("flat DPSGDTrainer") < text.index("Every run"), "what the short name stands for"


def test_the_advice_is_one_sentence_that_says_whom_to_train_with() -> None:
    memory = Finding("Memory", "A needs 1.5 MiB at x. The next one needs more.")
    use = Finding("Use", "Train with A.")
    said = advice([memory])
    assert said is not None
    assert said.text == "A needs 1.5 MiB at x."
    assert advice([memory, use]) == use
    assert advice([Finding("Savings", "Write this.")]) is None
    assert advice([]) is None


def test_comparisons_with_little_in_them_are_pages_too() -> None:
    parts = ("tiles", "scatter", "growth-charts", "failures")
    for part, cells in (
        ("tiles", [finished(STANDARD)]),
        ("failures", [result(name, failure=OOM) for name in (STANDARD, FLAT)]),
    ):
        page = shown(*cells)
        assert [name for name in parts if f'id="{name}"' in page] == [part]
