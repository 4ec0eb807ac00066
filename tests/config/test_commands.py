from collections import Counter

from dpprof.config.commands import COMMANDS
from dpprof.settings import fields


def test_what_a_command_leaves_out_it_would_otherwise_take() -> None:
    for takes in COMMANDS.values():
        names = [name for cls in takes.classes for name in fields(cls)]
        assert takes.without.keys() <= set(names)
        assert all(takes.without.values()), "each with its reason"
        assert [field.name for field in takes.settings] == [n for n in names if n not in takes.without]


def test_no_command_takes_two_settings_of_one_name() -> None:
    for takes in COMMANDS.values():
        assert max(Counter(field.name for field in takes.settings).values()) == 1


def test_measuring_and_estimating_share_no_setting() -> None:
    measuring, estimating = ({f.name for f in COMMANDS[name].settings} for name in ("sweep", "estimate"))
    assert {"passes", "counters"} <= measuring - estimating
    assert {"target", "savings", "workers"} <= estimating - measuring
