"""Packages installed by pip, beside those of the environment."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from conftest import environment


def installed_at(folder: Path, package: Path) -> str:
    """Install a package in the folder; the PYTHONPATH with which a process finds it."""
    source = shutil.copytree(package, folder / "source")
    offline = ["--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        *offline,
        "--target",
        str(folder / "site"),
        str(source),
    ]
    subprocess.run(command, check=True)
    return os.pathsep.join([environment(folder)["PYTHONPATH"], str(folder / "site")])
