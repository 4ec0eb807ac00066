"""Checks the required packages before anything starts."""

import importlib.metadata
import re

from dpprof.errors import ConfigError

# Oldest releases that dpprof works with, as in pyproject.toml; constraints.txt has the pinned ones.
MINIMUM = {
    "torch": "2.8",
    "opacus": "1.6",
    "mlflow": "3.15",
    "tensorboard": "2.21",
    "torch-tb-profiler": "0.4.3",
    "click": "8.2.1",
    "rich": "14.3",
    "jinja2": "3.1.2",
    "psutil": "6.0",
    "pydantic": "2.12",
    "numpy": "2.0",
    "scipy": "1.14",
    "matplotlib": "3.9",
}


def check_packages(minimum: dict[str, str] = MINIMUM) -> None:
    """Raise ConfigError that names every required package that is missing or too old."""
    wrong = []
    for package, oldest in minimum.items():
        try:
            found = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            wrong.append(f"{package} is missing (needs {oldest} or newer)")
            continue
        if _numbers(found) < _numbers(oldest):
            wrong.append(f"{package} is {found} (needs {oldest} or newer)")
    if wrong:
        raise ConfigError(f"packages: {'; '.join(wrong)}. Install with: pip install -e .")


def _numbers(version: str) -> tuple[int, ...]:
    numbers = [int(number) for number in re.findall(r"\d+", version.partition("+")[0])[:3]]
    return (*numbers, 0, 0, 0)[:3]
