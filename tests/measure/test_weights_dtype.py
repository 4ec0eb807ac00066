"""The type of the weights, as a Hugging Face configuration or a factory makes them, in all that is said."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from conftest import call_dpprof, fine, measure_here
from example_config import experiment
from example_families import changed, small
from example_runs import known, measured
from mlflow import MlflowClient
from page_reader import Page

from dpprof.errors import ConfigError
from dpprof.measure.workloads.workload import build_workload
from dpprof.record.folder import RunFolder
from dpprof.record.record import Record
from dpprof.vocabulary.precision import short_dtype

TINY = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 100, "hidden_size": 32}
TINY |= {"intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2}
SHORT = TINY | {"torch_dtype": "bfloat16"}
SAID = (
    "the configuration's own dtype, bfloat16, makes weights in bf16, and gradients and optimizer state with "
    "them; --weights-dtype fp32 makes them fp32"
)
STANDARD = "StandardTrainer_net_bs2_seq8"


@pytest.fixture(scope="module")
def estimated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with estimates for an H100: `short`, `wide`, from a config without a dtype, and `mixed`.

    `mixed` was resumed after its config lost its dtype.
    """
    folder = tmp_path_factory.mktemp("dtypes")
    net = folder / "net"
    net.mkdir()
    sizes = ["--batch-sizes", "2", "--seq-lens", "8", "--target", "H100", "--savings", "false"]
    sizes += ["--workers", "1"]

    def estimate(config: dict[str, object], name: str, *more: str, trainers: str = "standard,bk") -> str:
        (net / "config.json").write_text(json.dumps(config))
        given = ["--workload", f"huggingface:{net}", "--trainers", trainers, "--sweep-name", name]
        return fine(measure_here(folder, "estimate", *given, *sizes, *more)).stdout

    (folder / "short.txt").write_text(estimate(SHORT, "short"))
    (folder / "wide.txt").write_text(estimate(TINY, "wide", trainers="standard"))
    estimate(SHORT, "mixed", trainers="standard")
    estimate(TINY, "mixed", "--resume", "true")
    return folder


def record_of(folder: Path, sweep: str, run: str = STANDARD) -> Record:
    return known(RunFolder(folder / "runs" / sweep / run).read_record())


def logged(folder: Path, sweep: str) -> Any:
    """The run of standard training in MLflow."""
    where = [f"tags.`dpprof.sweep` = '{sweep}'", f"tags.`dpprof.run` = '{STANDARD}'"]
    client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
    found = [experiment.experiment_id for experiment in client.search_experiments()]
    (run,) = client.search_runs(found, " and ".join(where))
    return run


def told(text: str) -> str:
    """Without the console's line breaks."""
    return " ".join(text.split())


def test_an_estimate_says_the_type_of_the_weights_and_why(estimated: Path) -> None:
    short, wide = ((estimated / f"{name}.txt").read_text() for name in ("short", "wide"))
    (heading,) = (line for line in short.splitlines() if line.startswith("net ("))
    assert heading.endswith(" parameters), fp32, weights in bf16")
    assert told(short).count(SAID) == 1, "and once with a capital, at the end"
    assert told(short).count(SAID[1:]) == 2
    (heading,) = (line for line in wide.splitlines() if line.startswith("net ("))
    assert heading.endswith(" parameters), fp32")
    assert "dtype" not in wide
    assert record_of(estimated, "short").warnings == [SAID]
    assert record_of(estimated, "wide").warnings == []


def test_show_the_page_and_mlflow_say_it(estimated: Path) -> None:
    for sweep, expected in (("short", "fp32, weights in bf16"), ("wide", "fp32")):
        folder = RunFolder(estimated / "runs" / sweep / STANDARD)
        shown = fine(call_dpprof(estimated, "show", str(folder.path))).stdout
        assert f"precision: {expected}\n" in shown
        page = Page(folder.timeline_page.read_text())
        assert ["precision", expected] in page.tables["facts"]
        assert {row[1] for row in page.tables["parameters"][1:]} == {expected[-4:]}
        run = logged(estimated, sweep)
        params = run.data.params
        assert (params["precision"], params["resolved_weights_dtype"]) == ("fp32", expected[-4:])
        assert run.data.tags.get("dpprof.warnings", "") == (SAID if sweep == "short" else "")


@pytest.mark.parametrize(("sweep", "dtype", "size"), [("short", "bf16", 2), ("wide", "fp32", 4)])
def test_the_record_has_the_types_of_the_weights_and_of_products(
    sweep: str, dtype: str, size: int, estimated: Path
) -> None:
    record = record_of(estimated, sweep)
    numbers, ledger = known(record.num_parameters), known(record.ledger)
    assert record.weights == {dtype: numbers}
    assert known(ledger.at_peak)["parameters"] == size * numbers
    step = ledger.moved_in_step
    assert (step.fp32_flops < 1e-3 * step.flops) == (dtype == "bf16")


def test_compare_sets_weights_of_other_types_apart(estimated: Path) -> None:
    text = told(fine(call_dpprof(estimated, "compare", "runs/short", "runs/wide")).stdout)
    assert "These runs differ in type of weights (bf16, fp32): compare only rows with the same" in text
    assert "weights in bf16, estimated for H100" in text
    assert "weights in fp32, estimated for H100" in text


def test_a_resumed_sweep_has_no_ratio_of_a_trainer_to_another_models_standard(estimated: Path) -> None:
    exported = fine(call_dpprof(estimated, "export", "runs/mixed", "--format", "json", "--output", "e.json"))
    assert exported.stderr == ""
    text = fine(call_dpprof(estimated, "compare", "e.json")).stdout
    rows = [line for line in text.splitlines() if " needs " in line]
    (bk,) = (row for row in rows if row.startswith("bk "))
    (standard,) = (row for row in rows if row.startswith("standard  "))
    assert " 1.00 " in standard
    assert "0." not in bk.partition(")")[2].partition("needs")[0], "no ratio of its peak"
    assert told(text).count("batch 2, sequence 8, weights in ") >= 2


def test_a_baseline_with_other_weights_is_said_to_differ(estimated: Path) -> None:
    fine(call_dpprof(estimated, "export", "runs/wide", "--format", "json", "--output", "wide.json"))
    text = told(fine(call_dpprof(estimated, "compare", "runs/short", "--baseline", "wide.json")).stdout)
    assert "the two sides differ in type of weights: fp32 in the baseline, bf16 now" in text


REPLACED = "the configuration's own dtype is bfloat16; weights are in fp32, as weights_dtype says"
HUB = "huggingface:llama-1b"


@pytest.mark.parametrize(
    ("settings", "dtype", "warnings"),
    [
        ({"model_config": "dtype=float32"}, "fp32", ()),
        ({"model_config": "torch_dtype=bfloat16"}, "bf16", ()),
        ({"model_config": "use_cache=false"}, "bf16", (SAID,)),
        ({"weights_dtype": "fp32"}, "fp32", (REPLACED,)),
        ({"weights_dtype": "bf16"}, "bf16", ()),
        ({"weights_dtype": "bf16", "workload": HUB}, "bf16", ()),
        ({"weights_dtype": "fp32", "workload": HUB}, "fp32", ()),
    ],
)
def test_an_option_decides_the_type_and_names_what_the_config_says(
    settings: dict[str, Any], dtype: str, warnings: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(SHORT))
    config = small("llama-1b", **{"workload": f"huggingface:{tmp_path}", **settings})
    made = build_workload(config)
    assert {short_dtype(str(parameter.dtype)) for parameter in made.model.parameters()} == {dtype}
    assert made.warnings == warnings
    assert "weights_dtype" not in settings or config.model_title.endswith(f"-{dtype}")


def test_contradicting_types_are_refused() -> None:
    for settings, said in (
        ({"weights_dtype": "bf16"}, "weights_dtype: got 'bf16', allowed: auto with any"),
        ({"adapter_dtype": "bf16"}, "adapter_dtype: got 'bf16', allowed: fp32 unless train=lora"),
    ):
        with pytest.raises(ConfigError, match=re.escape(said)):
            experiment(workload="transformer", **settings)
    said = r"weights_dtype: got 'bf16', allowed: auto with model_config=.*sets dtype"
    with pytest.raises(ConfigError, match=said):
        build_workload(changed("llama-1b", "dtype=float32", weights_dtype="bf16"))
    said = "adapter_dtype: got 'bf16', allowed: fp32, unless all adapted layers"
    with pytest.raises(ConfigError, match=said):
        build_workload(small("qwen", adapter_dtype="bf16", train="lora"))


@pytest.mark.parametrize(("dtype", "adapters"), [("bf16", "fp32"), ("bf16", "bf16"), ("fp32", "fp32")])
def test_adapters_are_in_fp32_whatever_the_base_is_in_unless_asked(dtype: str, adapters: str) -> None:
    config = small("qwen", weights_dtype=dtype, adapter_dtype=adapters, train="lora")
    parts: dict[bool, set[str]] = {True: set(), False: set()}
    for parameter in build_workload(config).model.parameters():
        parts[parameter.requires_grad].add(short_dtype(str(parameter.dtype)))
    assert parts == {True: {adapters}, False: {dtype}}
    assert config.model_title == f"qwen-{dtype}-lora8" + "-bf16" * (adapters == "bf16")


def test_check_says_the_type_and_why(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(SHORT))
    given = [f"huggingface:{tmp_path}", "--trainers", "standard,bk", "--seq-len", "8"]
    text = told(fine(measure_here(tmp_path, "check", *given)).stdout)
    assert " parameters in bf16 on cpu" in text
    assert f"to know (standard, bk): {SAID}" in text


def test_a_factory_of_ones_own_is_named_and_measured_in_its_type(tmp_path: Path) -> None:
    asked = {"workload": "example_workloads:cast_to_bf16", "passes": "clean,ceilings", "device": "cpu"}
    record = measured(tmp_path, experiment(**asked, batch_size=2).resolve(cuda_available=False))
    assert record.weights_dtype == "bf16"
    assert record.warnings == []
    assert known(record.ceilings).precision == "bf16", "that of its products"
