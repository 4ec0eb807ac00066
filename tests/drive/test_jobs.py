"""How many experiments run at a time."""

import pytest
from example_config import experiment

from dpprof.drive.jobs import at_a_time
from dpprof.drive.launch.in_process import InProcessLauncher
from dpprof.drive.launch.local import LocalLauncher
from dpprof.errors import ConfigError

MEASURED = experiment(device="cpu", model_size="tiny")
ESTIMATED = experiment(passes="estimate", model_size="tiny")


def test_what_is_measured_is_alone_and_estimates_are_two() -> None:
    assert at_a_time(LocalLauncher(), MEASURED) == 1
    assert at_a_time(LocalLauncher(), ESTIMATED) == 2
    assert at_a_time(LocalLauncher(), ESTIMATED, workers=5) == 5


def test_in_this_process_there_is_one() -> None:
    assert at_a_time(InProcessLauncher(), ESTIMATED) == 1
    assert at_a_time(InProcessLauncher(), ESTIMATED, workers=1) == 1
    with pytest.raises(ConfigError, match=r"^workers: got '2', allowed: 1 with a launcher that runs"):
        at_a_time(InProcessLauncher(), ESTIMATED, workers=2)
