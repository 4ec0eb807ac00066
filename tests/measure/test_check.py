"""The check of a workload: whether it is there, keeps the contract, and trains with each trainer."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from covering import product
from example_faulty_trainers import LosesAGradient
from example_runs import known, put_in_place
from trap_cases import CONFIG, FAST, FLAT, GHOST, PRIVATE, configured, said

from dpprof.config.estimating import EstimatingConfig
from dpprof.config.experiment import ExperimentConfig
from dpprof.measure.entry import check_workload
from dpprof.measure.trainers.opacus.foreseen import WARNINGS as OPACUS_WARNINGS
from dpprof.measure.trainers.training import WARNINGS
from dpprof.record.check import CONTRACT, MODULE, TRAINING, CheckAnswer, CheckFolder, Finding
from dpprof.vocabulary.trainers import DEFAULT_TRAINERS, STANDARD

ALL = DEFAULT_TRAINERS
BK, MIXED = "DPBookKeepingTrainer", "DPMixedGhostTrainer"


def answered(folder: Path, depth: str, experiments: Sequence[ExperimentConfig]) -> CheckAnswer:
    asked = CheckFolder(folder)
    asked.ask(depth, experiments)
    assert check_workload(asked) == 0
    return known(asked.read_answer())


def trained(folder: Path, workload: str, trainers: Sequence[str] = ALL) -> CheckAnswer:
    if ":" not in workload:
        workload = configured(workload, STANDARD).workload
    config = dataclasses.replace(CONFIG, workload=workload, seq_len=8)
    return answered(folder, TRAINING, [dataclasses.replace(config, trainer=t) for t in trainers])


def test_the_traps_of_a_plain_gpt2_are_all_named(tmp_path: Path) -> None:
    answer = trained(tmp_path, "example_gpt2:plain")
    # dpprof's own trainers take position ids of one row and a tied head.
    assert answer.trains == {trainer: trainer not in PRIVATE for trainer in ALL}
    assert set(answer.findings) == {
        Finding(said("ids", module="positions", length=1, batch_size=3), PRIVATE),
        Finding(said("tied", modules="tokens and head", parameter="tokens.weight"), (GHOST,)),
        Finding(said("not_contiguous", module="tokens"), (GHOST,)),
        Finding(WARNINGS["dropout"].format(module="drop"), ALL, ("mlp_drop",), is_warning=True),
    }
    num_parameters = 23 * 8 + 64 * 8 + 2 * (8 * 8 + 8) + 2 * 8  # embeddings, MLP, norm; no head of its own
    assert answer.seen == f"inputs int64 (3, 8), targets int64 (3, 8); {num_parameters} parameters on cpu"


@pytest.mark.parametrize("workload", ["fixed", "named_outputs"])
def test_of_the_remedied_gpt2_nothing_is_said(tmp_path: Path, workload: str) -> None:
    answer = trained(tmp_path, f"example_gpt2:{workload}")
    assert answer.trains == dict.fromkeys(ALL, True)
    assert answer.findings == ()


FUNCTORCH = OPACUS_WARNINGS["functorch"].format(modules="body.layers.0, body.layers.1", kind="Transposed")
FOUND = [
    ("checkpointed", Finding(said("recomputed", module="body.layers.0.0"), (FAST,), ("body.layers.0.2",))),
    ("loss_per_class", Finding(said("loss", batch_size=3, found="shape (3, 5)"), (STANDARD, FLAT))),
    ("no_sampler", Finding(FUNCTORCH, (GHOST,), is_warning=True)),
    ("dropout_by_function", Finding(WARNINGS["draws"].format(module="body"), (FLAT,), is_warning=True)),
    ("dropout", Finding(WARNINGS["dropout"].format(module="body.1"), (FLAT,), is_warning=True)),
]


@pytest.mark.parametrize(("workload", "finding"), FOUND, ids=[workload for workload, _ in FOUND])
def test_one_thing_is_found(tmp_path: Path, workload: str, finding: Finding) -> None:
    others = (STANDARD,) if workload == "no_sampler" else ()
    answer = trained(tmp_path, workload, [*others, *finding.trainers])
    assert answer.findings == (finding,)
    assert all(answer.trains[trainer] is finding.is_warning for trainer in finding.trainers)


def test_an_error_of_the_models_own_is_told_with_its_line_wherever_that_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "torch" / "dpprof"
    place.mkdir(parents=True)
    copy = place / "broken_elsewhere.py"
    copy.write_text((ROOT / "tests" / "example_broken.py").read_text())
    monkeypatch.syspath_prepend(place)
    (finding,) = trained(tmp_path, "broken_elsewhere:misses", [STANDARD, GHOST]).findings
    assert finding.trainers == (STANDARD, GHOST)
    assert finding.text.startswith("a step fails, and why is not known here: AttributeError")
    assert f"({copy}, line " in finding.text


OWN, ALL_PRIVATE = (BK, MIXED), tuple(trainer for trainer in ALL if trainer != STANDARD)


@pytest.mark.parametrize(
    ("workload", "asked", "trapped", "says"),
    [
        ("layers:tied_by_reference", (STANDARD, *OWN), OWN, "head computes with a tensor that is neither"),
        ("layers:tabular", OWN, (BK,), "head.bias should train, and at most noise moves them"),
        ("mixing:centred", ALL, ALL_PRIVATE, "the model mixes the samples of a batch: "),
    ],
)
def test_one_thing_is_told_of_the_trainers_that_it_hinders(
    workload: str, asked: Any, trapped: Any, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of which one loses a gradient in the second case."""
    if workload == "layers:tabular":
        put_in_place(monkeypatch, BK, LosesAGradient)
    answer = trained(tmp_path, f"example_{workload}", asked)
    (finding,) = answer.findings
    assert finding.trainers == trapped
    assert finding.text.startswith(says)
    assert answer.trains == {trainer: trainer not in trapped for trainer in asked}


def test_standard_training_may_mix_samples(tmp_path: Path) -> None:
    assert trained(tmp_path, "example_mixing:centred", [STANDARD]).findings == ()


@pytest.mark.parametrize(("workload", "sentences"), [("batch_norm", 3), ("batch_norm_frozen", 2)])
def test_of_a_batch_norm_no_second_thing_is_said(tmp_path: Path, workload: str, sentences: int) -> None:
    findings = trained(tmp_path, f"example_mixing:{workload}").findings
    assert len(findings) == sentences
    assert all(finding.text.startswith("middle") for finding in findings)


def test_a_hook_of_a_parameter_is_named_for_every_trainer_that_cannot_call_it(tmp_path: Path) -> None:
    answer = trained(tmp_path, "example_hooked:scaling")
    assert answer.trains == {trainer: trainer == STANDARD for trainer in ALL}
    of_opacus, of_own = answer.findings
    assert of_opacus.text == said("gradient_hook", parameter="0.weight", method="register_hook")
    assert (of_opacus.trainers, of_own.trainers) == (PRIVATE, (BK, MIXED))
    assert of_own.text.startswith("0.weight has a hook (register_hook), and before samples are clipped")


def test_a_hook_that_only_looks_is_no_hindrance_to_opacus(tmp_path: Path) -> None:
    answer = trained(tmp_path, "example_hooked:looking")
    assert answer.trains == {trainer: trainer not in (BK, MIXED) for trainer in ALL}
    warning = OPACUS_WARNINGS["gradient_hook"].format(parameters="0.weight", method="register_hook")
    assert answer.findings[1:] == (Finding(warning, PRIVATE, is_warning=True),)


NO_MODULE = "there is no module nosuch: run from its folder, or put that on PYTHONPATH"


@pytest.mark.parametrize("depth", [MODULE, CONTRACT, TRAINING])
def test_a_module_that_is_not_there_is_refused_at_any_depth(tmp_path: Path, depth: str) -> None:
    config = dataclasses.replace(CONFIG, workload="nosuch:x")
    refused = answered(tmp_path, depth, [config]).refused
    assert refused == f"workload: got 'nosuch:x', {NO_MODULE}"


REFUSALS: dict[str, str | None] = {
    "no_batches": "(model, batches, loss), it returned Model, int, function",
    "batches_of_three": "must be pairs (inputs, targets), it gave a tuple of 3",
    "TOKENS": "TOKENS is no function",
    "three_dimensions": None,
    "loss_per_class": None,  # takes a step to see
}


@pytest.mark.parametrize(("workload", "how"), product(REFUSALS, [CONFIG.how, EstimatingConfig()]))
def test_the_contract_is_checked_without_a_step(tmp_path: Path, workload: str, how: EstimatingConfig) -> None:
    config = dataclasses.replace(configured(workload, FLAT), how=how)
    found, refused = answered(tmp_path, CONTRACT, [config]).refused, REFUSALS[workload]
    assert (found is None) if refused is None else (refused in (found or ""))
