"""The launcher does what every launcher must, on a cluster of this machine."""

import os
from collections.abc import Iterator

import pytest
import ray
from conftest import ROOT
from launcher_conformance import LauncherConformance

from dpprof.config.drive import DriveConfig
from dpprof.drive.launch.launcher import Launcher, make_launcher


@pytest.fixture(scope="module", autouse=True)
def _no_cluster_is_left() -> Iterator[None]:
    yield
    ray.shutdown()


@pytest.fixture
def launcher(monkeypatch: pytest.MonkeyPatch) -> Launcher:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(ROOT / "tests")]))
    return make_launcher(DriveConfig(launcher="ray", options={"ray_address": "local"}))


class TestConformance(LauncherConformance):
    pass
