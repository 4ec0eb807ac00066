"""Finds a workload's factory by name. Imports only what the name asks for."""

import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

from dpprof.config.experiment import ExperimentConfig
from dpprof.errors import ConfigError, describe_error
from dpprof.vocabulary.messages import is_oom
from dpprof.vocabulary.workloads import WORKLOADS, listed


def find_module(workload: str) -> None:
    """Find a workload's module, importing only its parent packages. Raises ConfigError if there is none."""
    name, module = _target(workload)
    try:
        spec = importlib.util.find_spec(module)
    except Exception as error:
        raise _not_imported(name, module, error) from error
    if spec is None:
        raise _no_module(name, module)


def load_factory(workload: str) -> Callable[[ExperimentConfig], Any]:
    """Import a workload's factory. Raises ConfigError if that fails."""
    name, module_name = _target(workload)
    attribute = name.rpartition(":")[2]
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        if is_oom(error):
            raise
        raise _not_imported(name, module_name, error) from error
    if not callable(getattr(module, attribute, None)):
        found = "is no function" if hasattr(module, attribute) else f"is not in {module_name}"
        raise ConfigError(
            f"workload: got {name!r}, {attribute} {found}: name a function that takes the ExperimentConfig"
        )
    return getattr(module, attribute)


def first_line(error: Exception) -> str:
    """Return an error's type and the first line of its message."""
    return describe_error(error).splitlines()[0].strip()


def _target(workload: str) -> tuple[str, str]:
    info = WORKLOADS.get(listed(workload))
    name = info.target if info else workload
    return name, name.rpartition(":")[0]


def _not_imported(name: str, module: str, error: Exception) -> ConfigError:
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    if missing and f"{module}.".startswith(f"{missing}."):
        return _no_module(name, missing)
    return ConfigError(f"workload: importing {module} raised {first_line(error)}")


def _no_module(name: str, missing: str) -> ConfigError:
    advice = "run from its folder, or put that on PYTHONPATH"
    return ConfigError(f"workload: got {name!r}, there is no module {missing}: {advice}")
