from collections.abc import Sequence

from example_results import comparison, result

from dpprof.figures.results import Result
from dpprof.record.record import Failure
from dpprof.reports.comparison.data import compute as compare
from dpprof.reports.comparison.tiles import Tiles, compute

OOM = Failure("oom", "CUDA out of memory")


def tiles(*results: Result) -> Tiles:
    found = compute(compare(comparison(*results)))
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


def test_else_lines_through_the_peaks_are_extended() -> None:
    """Backward takes 10 MiB a sample of the device's 100, twice as much with the other trainer."""
    found = tiles(
        *(
            result(
                trainer,
                step_s=0.1,
                peak_mib=mib * size,
                at_peak={"activations": mib * size},
                batch_size=size,
                environment={"memory_gib": str(100 / 1024)},
            )
            for trainer, mib in (("DPSGDTrainer", 20), ("DPGhostClippingTrainer", 10))
            for size in (2, 4)
        )
    )
    assert batches(found) == {"DPSGDTrainer": "at most about 5", "DPGhostClippingTrainer": "at most about 10"}
    assert "100.0 MiB" in found.note
    assert "not measured" in found.note


def test_another_model_that_reaches_the_limit_first_says_nothing_of_this_one() -> None:
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
            for model, heavier in (("tiny", 1), ("small", 5))
            for trainer, mib in (("DPSGDTrainer", 2 * heavier), ("DPGhostClippingTrainer", heavier))
            for size in (2, 4)
        )
    )
    assert found.model.label == "tiny"
    assert batches(found) == {
        "DPSGDTrainer": "at most about 50",
        "DPGhostClippingTrainer": "at most about 100",
    }
    assert "for tiny, sequence 512" in found.note


def test_nothing_finished_makes_no_tiles() -> None:
    assert compute(compare(comparison())) is None
    assert compute(compare(comparison(result(failure=OOM)))) is None


def test_one_trainer_alone_has_a_tile_and_nothing_to_set_it_against() -> None:
    found = tiles(result("DPSGDTrainer", step_s=0.1, peak_mib=3))
    assert (len(found.tiles), found.has_ratios, found.note) == (1, False, "")
