"""What storages are for: labels and expectations, and which of them counts."""

import threading

import pytest
import torch
from storage_lives import category_of, changes, followed_storages, life_of
from torch import Tensor

from dpprof.measure.passes.account import Account
from dpprof.measure.passes.ledger import Ledger
from dpprof.measure.passes.storages import Storages

storages = pytest.fixture(followed_storages)


def test_the_first_label_holds_from_birth_on(storages: Storages) -> None:
    storages.start_step()
    a, b = torch.zeros(10), torch.zeros(20)
    storages.label("noise", [("head.weight", a)])
    log = storages.end_step()
    assert changes(log) == [("noise", 40, None), ("temporary", 80, None)]
    assert life_of(storages, a).name == "head.weight"
    assert category_of(storages, b) is None


def test_a_second_label_is_a_change_in_time(storages: Storages) -> None:
    storages.start_step()
    a = torch.zeros(10)
    storages.label("per_sample_gradients", [("w", a)])
    storages.label("per_sample_gradients", [("w", a)])
    b = torch.zeros(5)
    storages.label("gradients", [("w", a.view(2, 5))])
    del a
    assert changes(storages.end_step()) == [
        ("per_sample_gradients", 40, None),
        ("temporary", 20, None),
        ("per_sample_gradients", 40, "gradients"),
        ("gradients", -40, None),
    ]
    assert b.numel() == 5


def test_a_view_is_labelled_with_all_of_its_storage(storages: Storages) -> None:
    storages.start_step()
    a = torch.zeros(10)
    storages.label("noise", [("w", a[3:5])])
    assert changes(storages.end_step()) == [("noise", 40, None)]


def test_what_was_labelled_in_one_step_is_known_in_the_next(storages: Storages) -> None:
    a, b = torch.zeros(10), torch.zeros(20)
    storages.label("parameters", [("w", a)])
    storages.label("gradients", [("w", a)])
    storages.start_step()
    storages.label("noise", [("", a)])
    storages.label("inputs", [("", b)])
    account = Account(storages.end_step())
    assert account.start == {"gradients": 40, "inputs": 80}
    assert list(account.changes) == [("gradients", 40, "noise")]


def test_labelling_what_was_made_unseen_is_its_birth(storages: Storages) -> None:
    made: list[Tensor] = []
    thread = threading.Thread(target=lambda: made.append(torch.zeros(100)))
    thread.start()
    thread.join()
    storages.start_step()
    storages.label("inputs", [("", made[0])])
    assert changes(storages.end_step()) == [("inputs", 400, None)]


def test_of_two_categories_that_hold_one_storage_the_first_named_counts(storages: Storages) -> None:
    a, b = torch.zeros(10), torch.zeros(20)
    held = {
        "gradients": [("a", a)],
        "per_sample_gradients": [("b", b), ("a as well", a[2:])],
    }
    storages.start_step()
    for _ in range(3):
        storages.label_held(held)
    account = Account(storages.end_step())
    assert account.start == {"gradients": 40, "per_sample_gradients": 80}
    assert list(account.changes) == []
    assert life_of(storages, a).name == "a"
    storages.start_step()
    storages.label_held({category: held[category] for category in reversed(held)})
    moves = changes(storages.end_step())
    assert moves == [("gradients", 40, "per_sample_gradients")]
    assert life_of(storages, a).name == "a as well"


def test_held_tensors_of_which_some_are_not_followed(storages: Storages) -> None:
    a = torch.zeros(10)
    storages.label_held({"noise": [("meta", torch.zeros(3, device="meta")), ("a", a)], "inputs": []})
    assert category_of(storages, a) == "noise"
    assert storages.live_bytes() == 40


def test_what_is_made_inside_is_expected_to_be_of_a_category(storages: Storages) -> None:
    before = torch.zeros(1)
    with storages.label_new("noise"):
        inside = before + torch.zeros(2)
        view = before.view(1)
    after = torch.zeros(4)
    assert [category_of(storages, t) for t in (before, inside, view, after)] == [None, "noise", None, None]


def test_only_what_is_accepted_is_expected(storages: Storages) -> None:
    with storages.label_new("gram_matrices", lambda shape: len(shape) == 3 and shape[1] == shape[2]):
        square, flat = torch.zeros(2, 5, 5), torch.zeros(2, 5)
    assert category_of(storages, square) == "gram_matrices"
    assert category_of(storages, flat) is None


def test_of_nested_expectations_the_innermost_that_accepts_counts(storages: Storages) -> None:
    with storages.label_new("noise"):
        with storages.label_new("gram_matrices", lambda shape: len(shape) == 3):
            cube, flat = torch.zeros(2, 5, 5), torch.zeros(2, 5)
            with storages.label_new("clip_factors"):
                inner = torch.zeros(2, 5, 5)
        late = torch.zeros(2, 5, 5)
    found = [category_of(storages, t) for t in (cube, flat, inner, late)]
    assert found == ["gram_matrices", "noise", "clip_factors", "noise"]


def test_a_label_overrides_an_expectation_from_birth_on(storages: Storages) -> None:
    storages.start_step()
    with storages.label_new("noise"):
        a, b = torch.zeros(10), torch.zeros(20)
    storages.label("gradients", [("w", a)])
    assert changes(storages.end_step()) == [("gradients", 40, None), ("noise", 80, None)]
    assert b.numel() == 20


def test_an_expectation_ends_when_what_is_inside_fails(storages: Storages) -> None:
    with pytest.raises(KeyError), storages.label_new("noise"), storages.label_surviving("activations"):
        raise KeyError
    assert category_of(storages, torch.zeros(3)) is None


def test_what_outlives_its_making_is_kept_for_a_purpose(storages: Storages) -> None:
    before = torch.zeros(1)
    storages.start_step()
    with storages.label_surviving("activations"):
        kept, gone, labelled = torch.zeros(10), torch.zeros(20), torch.zeros(40)
        storages.label("inputs", [("", labelled)])
        with storages.label_new("noise"):
            expected = torch.zeros(80)
        before.add_(1)
        del gone
    after = torch.zeros(160)
    found = [category_of(storages, t) for t in (before, kept, labelled, expected, after)]
    assert found == [None, "activations", "inputs", "noise", None]
    assert changes(storages.end_step())[:3] == [
        ("activations", 40, None),
        ("temporary", 80, None),
        ("inputs", 160, None),
    ]


def test_of_nested_purposes_the_inner_one_counts(storages: Storages) -> None:
    with storages.label_surviving("activations"):
        with storages.label_surviving("noise"):
            inner = torch.zeros(1)
        outer = torch.zeros(2)
    assert [category_of(storages, t) for t in (inner, outer)] == ["noise", "activations"]


def test_what_was_kept_for_a_purpose_may_be_labelled_as_another_from_birth_on(storages: Storages) -> None:
    storages.start_step()
    with storages.label_surviving("activations"):
        a = torch.zeros(10)
    storages.label("gradients", [("", a)])
    assert changes(storages.end_step()) == [("gradients", 40, None)]


def test_ending_a_step_that_never_began_is_refused() -> None:
    with pytest.raises(AssertionError, match="no step has begun"):
        Storages("cpu").end_step()


def test_what_later_steps_label_leaves_an_account_as_it_is() -> None:
    with Ledger("cpu") as ledger:
        storages = ledger.storages
        storages.start_step()
        first, second = torch.zeros(10), torch.zeros(5)
        storages.label("per_sample_gradients", [("", first)])
        storages.label("gradients", [("", first)])
        account = Account(storages.end_step())
        storages.start_step()
        storages.label("inputs", [("", second)])
        storages.end_step()
    assert account.at_peak == {"per_sample_gradients": 40, "temporary": 20}
    assert [(t.category, t.num_bytes) for t in account.tensors_at_peak] == [
        ("per_sample_gradients", 40),
        ("temporary", 20),
    ]
    assert account.timeline().category[0] == "per_sample_gradients"


def test_a_label_without_a_name_leaves_the_name() -> None:
    storages, tensor = Storages("cpu"), torch.zeros(3)
    storages.label("gradients", [("head.weight", tensor)])
    storages.label("gradients", [("", tensor)])
    life = storages.see(tensor)
    assert life is not None
    assert life.name == "head.weight"
