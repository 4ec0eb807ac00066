"""Tells the tests which of them start a process that imports torch: Python runs this where it finds it."""

import os
import sys
from importlib.abc import MetaPathFinder
from typing import Any

_TOLD = "DPPROF_TEST_STARTS"


class _Noticing(MetaPathFinder):
    """Finds nothing; writes down the first import of torch, with the test that runs."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name == "torch":
            sys.meta_path.remove(self)
            with open(os.environ[_TOLD], "a") as told:
                told.write(os.environ["PYTEST_CURRENT_TEST"] + "\n")


if _TOLD in os.environ and "PYTEST_CURRENT_TEST" in os.environ:
    sys.meta_path.insert(0, _Noticing())
