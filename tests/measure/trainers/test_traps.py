"""Each limit of Opacus that a model can hit is named with its module and its remedy, and nothing else is."""

import dataclasses
import itertools
import re
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from _pytest.mark import ParameterSet
from conftest import ROOT
from covering import product
from example_runs import known
from example_trainers import gradient_error
from opacus.grad_sample import grad_sample_module
from trap_cases import CONFIG, FAST, FLAT, GHOST, PRIVATE, SENTENCES, TRAINED, TRAPS, configured, said

from dpprof.errors import DpprofError, EstimateError, WorkloadError
from dpprof.measure import mixed_samples
from dpprof.measure.observe import Observer
from dpprof.measure.trainers.build import load_trainer
from dpprof.measure.trainers.fake_tensors import fake_tensors
from dpprof.measure.trainers.opacus.foreseen import WARNINGS as OPACUS_WARNINGS
from dpprof.measure.trainers.opacus.foreseen import silent_traps
from dpprof.measure.trainers.training import WARNINGS as ANY_WARNINGS
from dpprof.measure.trainers.training import Training
from dpprof.measure.trainers.watched_step import watch_step
from dpprof.measure.workloads.workload import build_workload

WARNINGS = OPACUS_WARNINGS | ANY_WARNINGS


def train(workload: str, trainer: str, *, on_fakes: bool = False, is_sampled: bool = False) -> None:
    """Two steps, or three of sampled batches."""
    config = dataclasses.replace(configured(workload, trainer), poisson_sampling=is_sampled)
    with fake_tensors(load_trainer(config.trainer)) if on_fakes else nullcontext():
        Training(config).run(2 + is_sampled, Observer())


def refusal(workload: str, trainer: str, *, on_fakes: bool = False) -> WorkloadError:
    with pytest.raises(WorkloadError) as failed:
        train(workload, trainer, on_fakes=on_fakes)
    return failed.value


def foreseen(workload: str) -> dict[str, list[str]]:
    """What is foreseen of one watched step, for each trainer."""
    config = configured(workload, FLAT)
    built = build_workload(config)
    step = watch_step(built, next(iter(built.batches)), config)
    found = {}
    for trainer in TRAINED:
        traps = load_trainer(trainer).foresee(step)
        found[trainer] = list(dict.fromkeys(trap.text for trap in traps if not trap.is_warning))
    return found


@pytest.mark.parametrize(("workload", "trapped", "sentence"), TRAPS, ids=[trap[0] for trap in TRAPS])
def test_what_fails_is_foreseen_and_nothing_else(
    workload: str, trapped: tuple[str, ...], sentence: str
) -> None:
    expected = {trainer: [sentence] if trainer in trapped else [] for trainer in TRAINED}
    assert foreseen(workload) == expected


WITH_REMEDY = ["positions", "three_dimensions", "frozen", "residual_added", "relu", "rms_norm", "group_norm"]
WITH_REMEDY += ["instance_norm_untracked", "dp_lstm", "dp_gru", "dp_rnn", "dp_attention"]
FREE = [*WITH_REMEDY, "vision", "scaled", "checkpointed_reentrant", "no_sampler", "dropout"]
FREE += ["dropout_by_function", "bag_with_offsets"]


@pytest.mark.parametrize("workload", FREE)
def test_nothing_is_foreseen_of_a_model_that_trains(workload: str) -> None:
    assert not any(foreseen(workload).values())


def test_ids_whose_slice_is_not_contiguous() -> None:
    found = foreseen("sliced")
    assert found[GHOST] == [said("not_contiguous", module="body.layers.0")]
    assert found[FLAT] == found[FAST] == []


def _named() -> Iterator[ParameterSet]:
    """Each trap with one trainer that it traps and one that it does not, in turn; the rest is exhaustive."""
    for i, (workload, trapped, sentence) in enumerate(TRAPS):
        others = [trainer for trainer in TRAINED if trainer not in trapped]
        chosen = {(those[i % len(those)], i // 3 % 2 == 1) for those in (trapped, others)}
        for trainer, on_fakes in itertools.product(TRAINED, (False, True)):
            marks = [] if (trainer, on_fakes) in chosen else [pytest.mark.exhaustive]
            case = f"{workload}-{trainer}-{'fake' if on_fakes else 'real'}"
            yield pytest.param(workload, trapped, sentence, trainer, on_fakes, id=case, marks=marks)


@pytest.mark.parametrize(("workload", "trapped", "sentence", "trainer", "on_fakes"), list(_named()))
def test_a_trap_is_named(
    workload: str, trapped: tuple[str, ...], sentence: str, trainer: str, on_fakes: bool
) -> None:
    if trainer not in trapped:
        train(workload, trainer, on_fakes=on_fakes)
        return
    error = refusal(workload, trainer, on_fakes=on_fakes)
    assert str(error) == sentence
    assert error.__cause__ is not None, "the original error is behind it"
    assert not isinstance(error.__cause__, DpprofError)


@pytest.mark.parametrize("trainer", PRIVATE)
def test_a_layer_that_is_called_again_in_backward_is_named(trainer: str) -> None:
    layers = ("body.layers.0.0", "body.layers.0.2")
    assert foreseen("checkpointed")[trainer] == [said("recomputed", module=layer) for layer in layers]
    assert str(refusal("checkpointed", trainer)) == said("recomputed", module=layers[0])
    train("checkpointed_reentrant", trainer)


@pytest.mark.parametrize(
    ("workload", "culprit", "trainer"),
    [
        ("residual", "body", FLAT),
        ("relu_method", "body", GHOST),
        ("relu_function", "body", FAST),
        ("loss_in_place", "the workload's loss", FLAT),
    ],
)
def test_an_operator_in_place_is_named_with_its_line(workload: str, culprit: str, trainer: str) -> None:
    error = str(refusal(workload, trainer))
    place = known(re.search(r"\(example_trapped\.py, line (\d+)\)", error))
    assert error == SENTENCES["in_place"].format(module=culprit, where=place[0].strip("()"))
    line = (ROOT / "tests" / "example_trapped.py").read_text().splitlines()[int(place[1]) - 1]
    assert re.search(r"\+=|relu_\(|inplace=True|mul_\(", line), line


@pytest.mark.parametrize("trainer", PRIVATE)
def test_a_bag_with_offsets_can_be_measured_and_not_estimated(trainer: str) -> None:
    train("bag_with_offsets", trainer)
    assert str(refusal("bag_with_offsets", trainer, on_fakes=True)) == said("bag_on_fakes", module="bag")


@pytest.mark.parametrize("trainer", PRIVATE)
def test_images_with_channels_last_are_refused_though_nothing_fails(trainer: str) -> None:
    sentence = said("channels_last", module="body.layers.0")
    for on_fakes in (False, True):
        error = refusal("images_with_channels_last", trainer, on_fakes=on_fakes)
        assert str(error) == sentence
    assert foreseen("images_with_channels_last")[trainer] == [sentence]
    train("images_with_channels_last", TRAINED[0], on_fakes=False)


@pytest.mark.parametrize("trainer", PRIVATE)
def test_as_many_positions_as_samples_are_seen_in_a_batch_of_another_size(trainer: str) -> None:
    config = dataclasses.replace(configured("positions_t", trainer), seq_len=CONFIG.batch_size)
    with pytest.raises(WorkloadError) as failed:
        Training(config).run(1, Observer())
    assert str(failed.value) == said("shared", module="body.layers.0", length=3, samples=2)


@pytest.mark.parametrize(("workload", "trainer"), product(WITH_REMEDY, PRIVATE))
def test_the_remedy_trains_with_the_right_gradient(workload: str, trainer: str) -> None:
    assert gradient_error(configured(workload, trainer), "float64") < 1e-12
    assert warned(workload) == []


@pytest.mark.parametrize(
    ("workload", "trainer"), [("stacks", FLAT), ("misses", GHOST), ("lacks", FAST), ("lacks", TRAINED[0])]
)
def test_an_error_of_the_users_own_stays_as_it_is(workload: str, trainer: str) -> None:
    with pytest.raises(
        (RuntimeError, AttributeError, TypeError), match=r"stack expects|_norm_sample|missing 1"
    ):
        train(workload, trainer)


def test_a_module_of_whose_calls_only_some_count_is_not_called_unused() -> None:
    for trainer, error in {FLAT: ValueError, GHOST: DpprofError, FAST: AttributeError}.items():
        with pytest.raises(error) as failed:
            train("half_used", trainer)
        assert "not called" not in str(failed.value)


def test_running_out_of_memory_is_no_trap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inside the hook of a module that Opacus cannot take anyway."""

    def runs_out(*args: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")

    monkeypatch.setattr(grad_sample_module, "ft_compute_per_sample_gradient", runs_out)
    with pytest.raises(torch.OutOfMemoryError):
        train("lstm", FLAT)
    with pytest.raises(MemoryError):
        train("runs_out_of_memory", FLAT)


def warned(workload: str) -> list[str]:
    return silent_traps(build_workload(configured(workload, FLAT)).model)


RAW = {"vision": ("the model", "cls_token, pos_embed"), "scaled": ("body", "scale")}


@pytest.mark.parametrize(("workload", "trainer"), product(RAW, PRIVATE))
def test_raw_parameters_are_told_with_their_module_and_get_the_right_gradient(
    workload: str, trainer: str
) -> None:
    module, parameters = RAW[workload]
    assert warned(workload) == [WARNINGS["raw"].format(module=module, parameters=parameters)]
    assert gradient_error(configured(workload, trainer), "float64") < 1e-12


@pytest.mark.parametrize("trainer", PRIVATE)
def test_a_bag_of_maxima_is_told_and_has_no_per_sample_gradients(trainer: str) -> None:
    assert warned("bag_max") == [WARNINGS["bag_max"].format(module="bag")]
    config = configured("bag_max", trainer)
    training = Training(config)
    training.run(1, Observer())
    assert training.trainer.unbounded() == warned("bag_max"), "and so the run has no guarantee"
    held = training.held_tensors()
    kept = dict(held["per_sample_gradients" if trainer == FLAT else "gradient_norms"])
    assert kept["bag.weight"].abs().max() == 0
    assert kept["head.weight"].abs().max() > 0


def test_a_batch_norm_without_parameters_is_told_and_its_gradient_is_not_per_sample() -> None:
    sentence = WARNINGS["mixing"].format(module="body.layers.0", kind="BatchNorm1d")
    assert warned("batch_norm_untrained") == [sentence]
    assert gradient_error(configured("batch_norm_untrained", FLAT), "float64") > 1e-3


@pytest.mark.parametrize(
    ("workload", "sentence", "trainer", "on_fakes"),
    [
        ("small_batches", said("batch", length=2, batch_size=3), TRAINED[0], False),
        ("small_batches", said("batch", length=2, batch_size=3), FLAT, True),
        ("loss_per_class", said("loss", batch_size=3, found="shape (3, 5)"), GHOST, False),
        ("loss_as_a_number", said("loss", batch_size=3, found="a float"), FAST, True),
    ],
)
def test_a_loss_that_is_not_per_sample(workload: str, sentence: str, trainer: str, on_fakes: bool) -> None:
    assert str(refusal(workload, trainer, on_fakes=on_fakes)) == sentence


BROKEN = {"batches_by_name": "a dict", "batches_of_inputs": "a Tensor"}
BROKEN |= {"raises": "raised KeyError: 'weights'"}


@pytest.mark.parametrize("workload", BROKEN)
def test_a_workload_that_breaks_the_contract(workload: str) -> None:
    assert str(refusal(workload, FLAT)).endswith(BROKEN[workload])


@pytest.mark.parametrize("trainer", TRAINED)
def test_a_model_that_takes_no_empty_batch_is_named_under_poisson_sampling(trainer: str) -> None:
    with pytest.raises(WorkloadError, match=r"^the step with an empty batch failed \(RuntimeError: cann"):
        train("viewed", trainer, is_sampled=True)
    train("viewed", trainer)  # without sampling nothing is wrong with it


def test_what_fails_with_a_full_batch_too_is_not_blamed_on_an_empty_one() -> None:
    with pytest.raises(ValueError, match="batches ended"):
        train("one_batch", FLAT, is_sampled=True)
    with pytest.raises(WorkloadError, match="Opacus needs the bias"):
        train("norm_without_bias", FLAT, is_sampled=True)
    with pytest.raises(EstimateError, match="_local_scalar_dense"):
        train("reads_a_number", FLAT, on_fakes=True, is_sampled=True)
    train("batches_of_any_size", FLAT, is_sampled=True)


QUOTED = re.compile(r"^\| `(?:WorkloadError|warning): (.+?)` \|", re.MULTILINE)


def test_the_guide_quotes_what_is_said() -> None:
    errors, warnings = SENTENCES | mixed_samples.SENTENCES, WARNINGS | mixed_samples.WARNINGS
    texts = [*errors.values(), *warnings.values()]
    words = {name for text in texts for name in re.findall(r"\{(\w+)\}", text)}
    printed = [text.format(**{name: name.upper() for name in words}) for text in texts]
    assert sorted(QUOTED.findall((ROOT / "docs" / "troubleshooting.md").read_text())) == sorted(printed)
