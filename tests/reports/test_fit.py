from typing import Any

import pytest
from example_config import experiment
from example_results import result
from scipy.stats import poisson

from dpprof.config.estimating import EstimatingConfig
from dpprof.config.fit import FitConfig
from dpprof.figures.results import Result
from dpprof.record.record import PassOutcome
from dpprof.reports.fit import Answer, expected_batch, rows, to_markdown


@pytest.mark.parametrize("largest", [1, 8, 57, 4000])
@pytest.mark.parametrize("tail", [1e-6, 0.01, 0.5])
def test_the_expected_batch_exceeds_the_largest_one_as_often_as_asked(largest: int, tail: float) -> None:
    mean = expected_batch(largest, tail)
    assert poisson.sf(largest, mean) == pytest.approx(tail, rel=1e-6)


def answer(size: int, *, is_open: bool, verified: tuple[Result, ...] = ()) -> Answer:
    """An estimate of 1 GiB, found for a device of 2 GiB."""
    settings: dict[str, Any] = {
        "batch_size": size,
        "passes": "estimate",
        "device_memory_gib": 2.0,
        "device": "cpu",
    }
    best = result("DPSGDTrainer", step_s=0.1, peak_mib=1024, at_peak={"activations": 1024}, **settings)
    assert best.record is not None
    best.record.passes = {"estimate": PassOutcome("finished")}
    return Answer(best.config, "batch_size", "", size, 3, best, verified, is_open=is_open)


def cells(answers: list[Answer], fit: FitConfig) -> list[str]:
    (line,) = (line for line in to_markdown("f", answers, fit).splitlines() if line.startswith("| tiny"))
    return [text.strip() for text in line.strip("|").split(" | ")]


def test_a_search_that_ended_at_its_limit_claims_no_more_than_it_tried() -> None:
    fit = FitConfig(logical_batch=2**22)
    found = [answer(2**20, is_open=True)]
    assert cells(found, fit)[4:] == [
        "",
        "1,048,576 or more (not searched further)",
        "1.00",
        f"{expected_batch(2**20, EstimatingConfig().poisson_tail):,.0f} or more",
        "4 or fewer",
    ]
    text = to_markdown("f", found, fit)
    assert "larger ones were not tried" in text
    assert "the next larger one" not in text
    assert "the next larger one does not" in to_markdown("f", [*found, answer(100, is_open=False)], fit)
    (row,) = rows(found, fit)
    assert (row["largest_batch_size"], row["is_at_least"]) == (2**20, True)
    assert (row["limiting_phase"], row["limiting_category"]) == (None, None)


def test_a_search_that_found_what_does_not_fit_says_so() -> None:
    found = [answer(100, is_open=False)]
    assert cells(found, FitConfig())[4:6] == ["activations in backward", "100"]
    assert rows(found, FitConfig())[0]["is_at_least"] is False
    text = to_markdown("f", found, FitConfig())
    assert "or more" not in text
    assert "the next larger one does not" in text


def test_of_an_open_answer_nothing_larger_is_measured() -> None:
    assert answer(100, is_open=False).sizes_to_verify == (100, 101)
    assert answer(100, is_open=True).sizes_to_verify == (100,)
    fits = result("DPSGDTrainer", step_s=0.1, peak_mib=1000)
    exceeds = result("DPSGDTrainer", step_s=0.1, peak_mib=3000)
    fit = FitConfig(verify=True)
    shown = {
        name: cells([answer(100, is_open=True, verified=(run,))], fit)[-2:]
        for name, run in (("a", fits), ("b", exceeds))
    }
    assert shown == {"a": ["not searched", "yes"], "b": ["not searched", "NO"]}
    assert cells([answer(100, is_open=False, verified=(fits, exceeds))], fit)[-2:] == ["2.93 GiB", "yes"]


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
