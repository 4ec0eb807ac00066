"""What a fit found, as data and as a table."""

import dataclasses
from typing import Any

import pytest
from example_config import experiment
from example_results import result
from scipy.stats import poisson

from dpprof.config.entry_points import FitConfig
from dpprof.config.estimating import EstimatingConfig
from dpprof.findings.fit import Answer, expected_batch, first_choices, limit_in_words, rows
from dpprof.pages import markdown
from dpprof.pages.fit import page
from dpprof.record.figures.results import Result
from dpprof.record.ledger import TrafficRow
from dpprof.record.record import PassOutcome, PassStatus
from dpprof.vocabulary.formats import number


@pytest.mark.parametrize("largest", [1, 8, 57, 4000])
@pytest.mark.parametrize("tail", [1e-6, 0.01, 0.5])
def test_the_expected_batch_exceeds_the_largest_one_as_often_as_asked(largest: int, tail: float) -> None:
    mean = expected_batch(largest, tail)
    assert poisson.sf(largest, mean) == pytest.approx(tail, rel=1e-6)


def answer(size: int, *, is_open: bool, verified: tuple[Result, ...] = (), target: str = "none") -> Answer:
    """An estimate of 1 GiB that moves 4.8 GB backward, found for a device of 2 GiB."""
    settings: dict[str, Any] = {
        "batch_size": size,
        "passes": "estimate",
        "device_memory_gib": 2.0,
        "device": "cpu" if target == "none" else "cuda",
        "target": target,
    }
    best = result("DPSGDTrainer", step_s=0.1, peak_mib=1024, at_peak={"activations": 1024}, **settings)
    assert best.record is not None
    assert best.record.ledger is not None
    row = TrafficRow("aten::mm", "other", "backward", 1, 4_800_000_000, 0, 0)
    row.predicted_s = 0.0 if target == "none" else 2e-3
    best.record.ledger.traffic = [row]
    best.record.passes = {"estimate": PassOutcome(PassStatus.FINISHED)}
    return Answer(best.config, "batch_size", "", size, 3, best, verified, is_open=is_open)


def text_of(answers: list[Answer], fit: FitConfig) -> str:
    return markdown.render(page("f", answers, fit))


def cells(answers: list[Answer], fit: FitConfig) -> list[str]:
    (line,) = (line for line in text_of(answers, fit).splitlines() if "| tiny" in line)
    return [text.strip() for text in line.strip("|").split(" | ")]


def test_a_search_that_ended_at_its_limit_claims_no_more_than_it_tried() -> None:
    fit = FitConfig(logical_batch=2**22)
    found = [answer(2**20, is_open=True)]
    assert cells(found, fit)[2:] == [
        "1,048,576 or more (not searched further)",
        "1.00",
        "",
        "tiny",
        "fp32",
        f"{expected_batch(2**20, EstimatingConfig().poisson_tail):,.0f} or more",
        "4 or fewer",
    ]
    texts = [text_of(found, fit), text_of([*found, answer(100, is_open=False)], fit)]
    assert ["the next larger one" in text for text in texts] == [False, True]
    assert "larger ones were not tried" in texts[0]
    (row,) = rows(found, fit)
    assert (row["largest_batch_size"], row["is_at_least"]) == (2**20, True)
    assert (row["limiting_phase"], row["limiting_category"]) == (None, None)


def test_a_search_that_found_what_does_not_fit_says_so() -> None:
    found = [answer(100, is_open=False)]
    assert cells(found, FitConfig())[2:5] == ["100 (96)", "1.00", "activations in backward"]
    (row,) = rows(found, FitConfig())
    assert (row["is_at_least"], row["round_batch_size"]) == (False, 96)
    text = text_of(found, FitConfig())
    assert "or more" not in text
    assert "the next larger one does not" in text


def test_of_an_open_answer_nothing_larger_is_measured() -> None:
    assert answer(100, is_open=False).sizes_to_verify == (100, 101)
    assert answer(100, is_open=True).sizes_to_verify == (100,)
    fits = result("DPSGDTrainer", step_s=0.1, peak_mib=1000)
    exceeds = result("DPSGDTrainer", step_s=0.1, peak_mib=3000)
    fit = FitConfig(verify=True)
    for is_open, verified, shown in (
        (True, (fits,), ["not searched", "yes"]),
        (True, (exceeds,), ["not searched", "NO"]),
        (False, (fits, exceeds), ["2.93 GiB", "yes"]),
    ):
        assert cells([answer(100, is_open=is_open, verified=verified)], fit)[-2:] == shown
    near = tuple(result("DPSGDTrainer", step_s=0.1, peak_mib=peak) for peak in (1800, 1900))
    usable = {"10%": "yes", "0%": "NO"}  # 1843 of 2048 MiB, or all of them
    close = [answer(100, is_open=False, verified=near)]
    assert {h: cells(close, FitConfig(verify=True, headroom=h))[-1] for h in usable} == usable


def test_models_are_told_apart_in_the_table() -> None:
    """A factory under two model sizes, and sizes changed by hand."""
    given: list[dict[str, Any]] = [
        {"workload": "pkg:make", "model_size": "tiny"},
        {"workload": "pkg:make", "model_size": "small"},
        {"model_size": "1b", "hidden_dim": 64, "num_layers": 2},
    ]
    configs = [experiment(**settings).resolve(cuda_available=False) for settings in given]
    found = [Answer(config, "batch_size", "", 0, 1) for config in configs]
    names = [row["model"] for row in rows(found, FitConfig())]
    assert names == ["pkg:make tiny", "pkg:make small", "1b-hidden64-layers2"]


def test_a_table_of_times_is_asked_for_only_where_a_batch_fits_and_has_no_time() -> None:
    said = "No time is predicted without a table of times"
    assert said in text_of([answer(64, is_open=False)], FitConfig())
    assert said not in text_of([answer(64, is_open=False, target="H200")], FitConfig())
    none_fits = dataclasses.replace(answer(1, is_open=False), size=0, best=None)
    assert said not in text_of([none_fits], FitConfig())


def test_the_optimizer_and_checkpointing_are_told_with_the_answer() -> None:
    assert "The optimizer is sgd." in text_of([answer(64, is_open=False)], FitConfig())
    found = answer(64, is_open=False)
    config = dataclasses.replace(found.config, optimizer="adamw", activation_checkpointing=True)
    text = text_of([dataclasses.replace(found, config=config)], FitConfig())
    assert "The optimizer is adamw, with activation checkpointing." in text
    assert limit_in_words(found.config, FitConfig()) == "1.90 GiB: 2.0 GiB less 5%"
    assert limit_in_words(found.config, FitConfig(headroom="0%")) == "2.00 GiB: 2.0 GiB"


def test_the_precision_is_told_with_the_type_of_the_weights() -> None:
    found = dataclasses.replace(answer(64, is_open=False), weights_dtype="bf16")
    (row,) = rows([found], FitConfig())
    assert (row["precision"], row["weights_dtype"]) == ("fp32", "bf16")
    assert "fp32, weights in bf16" in cells([found], FitConfig())
    assert "fp32" in cells([answer(64, is_open=False)], FitConfig())


def test_the_trainer_to_start_with_is_named_for_each_sequence() -> None:
    def row(trainer: str, ms: float | None, seq_len: int = 512) -> dict[str, Any]:
        place = {"model": "1b", "precision": "fp32", "weights_dtype": "fp32", "seq_len": seq_len}
        return place | {"trainer": trainer, "ms_per_sample": ms}

    flat, ghost, bk, standard = (
        "DPSGDTrainer",
        "DPGhostClippingTrainer",
        "DPBookKeepingTrainer",
        "StandardTrainer",
    )
    clear = [row(standard, 1.0), row(flat, 3.0), row(ghost, None), row(bk, 1.5)]
    (text,) = first_choices(clear)
    assert text == (
        "Start with bk: by predicted time for a sample, each at its own largest batch, it is the fastest of "
        "2 private trainers."
    )
    (text,) = first_choices([row(flat, 1.0), row(bk, 1.19)])
    assert text.startswith(
        "Start with bk: the predicted times of flat and bk for a sample, each at its own largest batch, are "
        "within 20 %, too"
    )
    found = list(first_choices([*clear, row(flat, 3.0, 64), row(bk, 4.0, 64)]))
    assert [text.partition(":")[0] for text in found] == [
        "Start with bk (1b, fp32, sequence 512)",
        "Start with flat (1b, fp32, sequence 64)",
    ]
    assert list(first_choices([row(bk, 1.0)])) == [], "nothing to choose between"


def test_the_headroom_is_explained_and_what_would_fit_without_it_is_told() -> None:
    found = [dataclasses.replace(answer(100, is_open=False), without_headroom=112)]
    text = text_of(found, FitConfig())
    assert "fits 2.0 GiB with 5% of its memory free; the next larger one does not" in text
    assert cells(found, FitConfig())[3:8:4] == ["1.00", "112"]
    (row,) = rows(found, FitConfig())
    assert (row["headroom_pct"], row["without_headroom"]) == (pytest.approx(5), 112)
    none = text_of([answer(100, is_open=False)], FitConfig(headroom="0%"))
    assert "fits 2.0 GiB; the next larger one does not" in none
    assert "No headroom is left" in none
    assert "| without headroom" not in none


def test_a_logical_batch_has_a_time_on_a_named_device_alone() -> None:
    fit = FitConfig(logical_batch=400)
    assert "logical_seconds" not in rows([answer(100, is_open=False)], fit)[0]
    (row,) = rows([answer(100, is_open=False, target="H200")], fit)
    assert row["logical_seconds"] == pytest.approx(8e-3), "2 ms for each of four physical batches"
    assert row["physical_steps"] == 4
    text = text_of([answer(100, is_open=False, target="H200")], fit)
    assert "predicted [s]" in text
    assert "predicted from measured times of operators" in text
    alone = [answer(100, is_open=False, target="H200")]
    (row,) = rows(alone, FitConfig())
    time, least, most = (row[f"{name}ms_per_sample"] for name in ("", "least_", "most_"))
    assert time == pytest.approx(0.02)
    assert least <= time <= most
    assert f"{number(time)} ({number(least)} to {number(most)})" in text_of(alone, FitConfig())
