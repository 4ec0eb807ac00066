"""Whether the module of a workload can be found on this machine. Imports nothing, so it is quick."""

import os
import sys
from importlib.machinery import PathFinder

from dpprof.drive.launch.launcher import Launcher
from dpprof.drive.launch.local_machine import LocalMachine
from dpprof.errors import ConfigError
from dpprof.settings import shortened, shown
from dpprof.vocabulary.workloads import WORKLOADS, listed


def refuse_missing_module(workload: str, launcher: Launcher) -> None:
    """Raise ConfigError if there is no module, or package, of a workload's name here.

    The module may lie deeper in a package that says itself where its modules are: the measuring process
    looks for it, before anything is measured. And it may be on another machine, if the launcher's is not
    this one.
    """
    if ":" not in workload or not isinstance(launcher.machine, LocalMachine):
        return
    known = WORKLOADS.get(listed(workload))
    if known is not None:
        if known.package and not _is_found(known.package):
            raise ConfigError(
                f"workload: {known.name} needs {known.package}: pip install 'dpprof[{known.extra}]'"
            )
        return
    name = workload.partition(":")[0].partition(".")[0]
    if name not in sys.modules and not _is_found(name):
        advice = "run from its folder, or put that on PYTHONPATH"
        raise ConfigError(f"workload: got {shown(workload)}, there is no module {shortened(name)}: {advice}")


def _is_found(name: str) -> bool:
    """Whether any finder knows the module; the measuring process also looks into the working directory."""
    finders = [finder for finder in sys.meta_path if hasattr(finder, "find_spec")]
    if any(finder.find_spec(name, None) is not None for finder in finders):
        return True
    return PathFinder.find_spec(name, [os.getcwd()]) is not None
