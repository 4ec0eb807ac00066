import re

from dpprof.vocabulary.trainable import choices, items, train_name

PATTERNS = ["*.bias", "*bias", ".bias", "bias*", "lora8", "all?", "h.0.*", "h.0.?", "*", "**", "x" * 300]
PATTERNS += ["!bias", "all,!bias", "all,!*bias", "bias,head", "head,bias"]


def test_names_are_short_safe_in_file_names_and_never_alike() -> None:
    adapters = [("lora", rank, targets) for rank in (1, 8, 16) for targets in ("auto", "q", "q,v", "qv")]
    settings = [*adapters, *((train, 8, "auto") for train in ("all", "bias", "head", *PATTERNS))]
    names = [train_name(*each) for each in settings]
    assert len(set(names)) == len(settings)
    assert all(re.fullmatch(r"[A-Za-z0-9-]{0,40}", name) for name in names)
    assert (train_name("all", 8, "auto"), train_name("lora", 8, "auto")) == ("", "lora8")
    assert train_name("h.0.*", 8, "auto").startswith("h-0-")


def test_items_are_separated_by_commas() -> None:
    assert items(" q_proj, v_proj,,") == ["q_proj", "v_proj"]


def test_choices_are_what_trains_and_what_is_excluded() -> None:
    assert choices("bias, head") == (["bias", "head"], [])
    assert choices("h.*,! h.0.*,!h.1.*") == (["h.*"], ["h.0.*", "h.1.*"])
    assert choices("!*wpe*") == (["all"], ["*wpe*"])
