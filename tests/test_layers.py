"""Holds the layers and the home of each heavy library."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import dpprof

PACKAGE = Path(dpprof.__file__).parent
FILES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))

# From top to bottom. A unit imports from lines below its own; on the last line, from each other too.
LAYERS = [
    ["cli"],
    ["sweep"],
    ["drive"],
    ["launch"],
    ["measure"],
    ["experiment", "tracking", "reports"],
    ["trainers", "passes"],
    ["workloads"],
    [
        "errors",
        "config",
        "grid",
        "settings",
        "record",
        "metrics",
        "model_sizes",
        "paths",
        "observe",
        "results",
        "requirements",
        "process",
        "environment",
        "lazy_opacus",
    ],
]
LINE = {unit: line for line, units in enumerate(LAYERS) for unit in units}

# Where each heavy library may be imported: folders and files of the package.
HOMES = {
    "mlflow": ("tracking.py",),
    "plotly": ("reports/",),
    "jinja2": ("reports/",),
    "opacus": ("trainers/", "workloads/dp_attention.py"),
    "click": ("cli/",),
    "rich": ("cli/",),
}


def unit_of(file: str) -> str:
    """The unit that a file belongs to; `python -m dpprof` is the command line by another name."""
    first = file.partition("/")[0].removesuffix(".py")
    return "cli" if first == "__main__" else first


def imports(source: str, *, inside_functions: bool = True) -> Iterator[str]:
    """Dotted names that a module imports, `from a import b` as `a.b`; under `if TYPE_CHECKING` too."""
    nodes: list[ast.AST] = [ast.parse(source)]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports are not read here"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        if inside_functions or not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            nodes.extend(ast.iter_child_nodes(node))


def units_imported(source: str) -> set[str]:
    """Units of dpprof that a module imports from; what `dpprof/__init__.py` itself defines is none."""
    parts = [name.split(".") for name in imports(source)]
    return {
        second
        for first, second, *_ in parts
        if first == "dpprof" and not hasattr(dpprof, f"__{second.strip('_')}__")
    }


def test_every_file_has_a_line() -> None:
    assert {unit_of(file) for file in FILES} == {*LINE, "__init__"}
