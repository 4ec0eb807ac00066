import pytest

from dpprof.config.sweep import SweepConfig
from dpprof.errors import ConfigError


def test_a_sweep_name_may_have_blanks_and_letters_of_any_language() -> None:
    assert SweepConfig(sweep_name="Größe 1.2-b").sweep_name == "Größe 1.2-b"


def test_only_a_named_sweep_is_resumed() -> None:
    assert SweepConfig(sweep_name="earlier", resume=True).resume
    with pytest.raises(ConfigError, match=r"^resume: got 'true', allowed: only together with sweep_name"):
        SweepConfig(resume=True)
