"""The experiments of a sweep."""

import itertools
import json
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from conftest import refusal

from dpprof.config.estimating import EstimatingConfig
from dpprof.config.grid import Grid, build_grid
from dpprof.config.measuring import MeasuringConfig
from dpprof.vocabulary.trainers import DEFAULT_TRAINERS, TRAINERS

# One cell.
ONE = {"trainers": "standard", "batch_sizes": "2", "seq_lens": "16"}


def grid(**values: object) -> Grid:
    return build_grid(values, cuda_available=lambda: False)


def points(grid: Grid) -> list[tuple[Any, ...]]:
    return [
        (c.model_size, c.precision, c.seq_len, c.batch_size, c.trainer) for c in grid.experiments.values()
    ]


def saved(folder: Path, content: object) -> str:
    path = folder / "sweep.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(("device", "size", "seq_lens"), [("cpu", "mini", [32]), ("cuda", "1b", [512, 1024])])
def test_defaults_depend_on_the_device(device: str, size: str, seq_lens: list[int]) -> None:
    # Trainers vary fastest, so that a cell's twins run next to each other.
    expected = list(itertools.product([size], ["fp32"], seq_lens, [4, 8], DEFAULT_TRAINERS))
    assert points(build_grid({"device": device}, cuda_available=lambda: True)) == expected
    assert points(build_grid({}, cuda_available=lambda: device == "cuda")) == expected


def test_every_axis_is_parsed_by_the_rules_of_its_field() -> None:
    sizes = {"model_sizes": "tiny,small", "precisions": "fp32,bf16", "seq_lens": "16"}
    trainers = ["DPSGDTrainer", "StandardTrainer"]
    expected = itertools.product(["tiny", "small"], ["fp32", "bf16"], [16], [1, 8], trainers)
    found = grid(**sizes, batch_sizes="1,8,08", trainers="flat, standard, DPSGDTrainer")
    assert points(found) == list(expected)


@pytest.mark.usefixtures("limited")
def test_words_stand_for_trainers_and_what_one_cannot_is_refused_with_the_reason() -> None:
    def trainers(text: str) -> list[str]:
        return [config.trainer for config in grid(**ONE | {"trainers": text}).experiments.values()]

    assert trainers("all") == list(DEFAULT_TRAINERS)
    assert set(trainers("every")) | {"LimitedTrainer"} == set(TRAINERS)
    assert trainers("all, limited") == [*DEFAULT_TRAINERS, "LimitedTrainer"]
    message = "precision: got 'bf16', allowed: fp32 with limited: it does not follow autocast; use flat"
    assert refusal(grid, trainers="flat,limited", precisions="fp32,bf16") == message


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ({"precisions": "bf16"}, ["mini_bs2_seq16"]),
        ({"precisions": "fp32,bf16"}, ["mini_bs2_seq16_fp32", "mini_bs2_seq16_bf16"]),
        ({"workload": "p:m", "model_sizes": "tiny,small"}, ["m_bs2_seq16_tiny", "m_bs2_seq16_small"]),
        ({"model_sizes": "tiny,small", "hidden_dim": "64"}, ["tiny_bs2_seq16", "small-hidden64_bs2_seq16"]),
    ],
)
def test_names_tell_what_varies_and_sizes_changed_by_hand(values: dict[str, str], names: list[str]) -> None:
    found = grid(**ONE, **values).experiments
    assert list(found) == [f"StandardTrainer_{name}" for name in names]
    if "precisions" in values:
        assert [config.precision for config in found.values()] == values["precisions"].split(",")


def test_experiments_are_resolved_and_keep_what_is_not_an_axis() -> None:
    (config,) = grid(**ONE, lr="0.5", passes="clean", hidden_dim="8").experiments.values()
    assert (config.device, config.lr, config.measuring.passes, config.hidden_dim) == ("cpu", 0.5, "clean", 8)
    assert config.vocab_size == 1_000


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"config": {"lr": None}}, "lr: got 'None', allowed: a number above 0"),
        ({"config": {"resume": 1}}, "resume: got '1', allowed: true or false"),
        ({"config": {"batch_sizes": [4, "x"]}}, "batch_sizes: batch_size: got 'x', allowed: a whole number"),
        ({"batch_sizes": "4,,8"}, "batch_sizes: batch_size: got an empty text, allowed: a whole number"),
        ({"trainers": "standard,adam"}, "trainers: got 'adam', allowed: standard (StandardTrainer), "),
        ({"precisions": "auto"}, "precisions: precision: got 'auto', allowed: fp32, tf32, bf16"),
        ({"batch_size": "4"}, "batch_size: a sweep varies it, use its plural"),
        ({"colour": "red"}, "unknown option 'colour', allowed: "),
        ({"sweep_name": "../up"}, "sweep_name: got '../up', allowed: letters, digits"),
        ({"config": [4, 8]}, "config: got 'FILE', allowed: a JSON object of option names and values"),
        ({"config": {"x": 1}}, "config: got 'FILE', allowed: an object of options only; 'x' is none"),
    ],
)
def test_refusals(tmp_path: Path, values: dict[str, object], message: str) -> None:
    """A configuration is the content of a file."""
    if "config" in values:
        values = {"config": saved(tmp_path, values["config"])}
    said = refusal(grid, **values).replace('"', "'").replace(str(tmp_path / "sweep.json"), "FILE")
    assert said.startswith(message)


def test_cuda_is_looked_for_only_after_the_options_are_read() -> None:
    cuda = Mock(return_value=False)
    assert refusal(build_grid, {"lr": "fast"}, cuda_available=cuda).startswith("lr: got 'fast'")
    assert cuda.call_count == 0
    build_grid({}, cuda_available=cuda)
    assert cuda.call_count == 1


def test_a_json_file_may_hold_any_option_as_text_number_or_list(tmp_path: Path) -> None:
    content = {"trainers": ["flat"], "batch_sizes": [1, 2], "seq_lens": 16, "passes": ["clean", "memory"]}
    path = saved(tmp_path, content | {"lr": 0.5, "sweep_name": "mine", "resume": True})
    found = grid(config=path)
    assert points(found) == [("mini", "fp32", 16, size, "DPSGDTrainer") for size in (1, 2)]
    assert {(c.measuring.passes, c.lr) for c in found.experiments.values()} == {("clean,memory", 0.5)}
    assert (found.config.sweep_name, found.config.resume) == ("mine", True)
    # An option wins over the file, with its default too.
    given = {"seq_lens": "32", "lr": "1e-2", "trainers": "standard", "batch_sizes": "8"}
    (config,) = grid(config=path, **given).experiments.values()
    assert (config.trainer, config.seq_len, config.lr) == ("StandardTrainer", 32, 0.01)
    assert (config.batch_size, config.measuring.passes) == (8, "clean,memory")


def test_a_text_is_held_against_each_cells_own_length(tmp_path: Path) -> None:
    text = tmp_path / "short.txt"
    text.write_text("x" * 300)
    assert len(grid(**ONE | {"data": str(text), "seq_lens": "64,299"}).experiments) == 2
    message = refusal(grid, **ONE | {"data": str(text), "seq_lens": "64,300"})
    assert "of more bytes than seq_len, which is 300" in message


def test_repeats_go_round_the_whole_grid() -> None:
    experiments = grid(**ONE | {"trainers": "standard,flat"}, device="cpu", repeats="3").experiments
    plain = ["StandardTrainer_mini_bs2_seq16", "DPSGDTrainer_mini_bs2_seq16"]
    assert list(experiments) == [f"{name}{rep}" for rep in ("", "_rep2", "_rep3") for name in plain]
    assert experiments[f"{plain[1]}_rep3"] == experiments[plain[1]]


@pytest.mark.parametrize(
    "expected",
    [MeasuringConfig(counters="auto", measured_steps=99), EstimatingConfig(target="T4", savings=False)],
)
def test_one_file_serves_to_measure_and_to_estimate(
    tmp_path: Path, expected: MeasuringConfig | EstimatingConfig
) -> None:
    """What only the other way has is left out."""
    content = {"counters": "auto", "measured_steps": 99, "seq_lens": [32], "target": "T4", "savings": False}
    values = {"config": saved(tmp_path, content)}
    found = build_grid(values, type(expected), cuda_available=lambda: True)
    assert {(config.how, config.seq_len) for config in found.experiments.values()} == {(expected, 32)}


def test_the_default_sweep_on_the_cpu_foresees_a_large_model() -> None:
    found = grid().foreseen
    private = [trainer for trainer in DEFAULT_TRAINERS if TRAINERS[trainer].is_private]
    assert list(found) == [f"{trainer}_1b_bs4_seq512" for trainer in private]
    for config in found.values():
        assert (config.device, config.estimating.target, config.hidden_dim) == ("cuda", "H100", 2048)
    large = grid(trainers="ghost,flat", precisions="bf16", repeats="2", lr="0.5").foreseen
    assert list(large) == ["DPGhostClippingTrainer_1b_bs4_seq512", "DPSGDTrainer_1b_bs4_seq512"]
    assert {(config.precision, config.lr) for config in large.values()} == {("bf16", 0.5)}


def test_any_other_sweep_foresees_nothing() -> None:
    for name, value in {
        "model_sizes": "mini",
        "hidden_dim": "64",
        "workload": "example_workloads:mlp",
        "trainers": "standard,ghost",
    }.items():
        assert grid(**{name: value}).foreseen == {}
    assert build_grid({}, cuda_available=lambda: True).foreseen == {}
    assert build_grid({"device": "cpu"}, EstimatingConfig, cuda_available=lambda: True).foreseen == {}


def test_a_model_that_its_workload_names_has_no_other_size() -> None:
    found = grid(workload="huggingface:gpt2").experiments.values()
    assert {(config.model_size, config.hidden_dim) for config in found} == {("auto", 0)}
    message = refusal(grid, workload="huggingface:gpt2", model_sizes="tiny,mini")
    assert message.startswith("model_sizes: got 'tiny,mini', allowed: auto with huggingface:gpt2")
