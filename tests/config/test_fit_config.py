import pytest

from dpprof.config.fit import FitConfig
from dpprof.errors import ConfigError
from dpprof.settings import parse_all


@pytest.mark.parametrize(
    ("headroom", "usable"), [("10%", 0.9), ("0%", 1.0), ("2.5%", 0.975), ("99%", 0.01), (" 5% ", 0.95)]
)
def test_headroom_is_a_percentage(headroom: str, usable: float) -> None:
    assert parse_all(FitConfig, {"headroom": headroom}).usable == pytest.approx(usable)


@pytest.mark.parametrize("headroom", ["10", "0.1", "-1%", "100%", "ten%", "%", ""])
def test_anything_else_is_refused(headroom: str) -> None:
    with pytest.raises(ConfigError, match=r"^headroom: got .*, allowed: a percentage from 0% to below 100%"):
        parse_all(FitConfig, {"headroom": headroom})


def test_some_headroom_is_left_by_default() -> None:
    assert FitConfig().usable == 0.9
