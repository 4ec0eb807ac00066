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
    ["fit"],
    ["sweep"],
    ["drive", "sources"],
    ["counters"],
    ["launch"],
    ["measure"],
    ["experiment", "tracking", "reports"],
    ["estimate", "gradient_check"],
    ["trainers", "passes"],
    ["workloads"],
    [
        "errors",
        "formats",
        "gradient_verdict",
        "config",
        "grid",
        "settings",
        "record",
        "ledger_data",
        "loops",
        "counter_data",
        "operator_classes",
        "ncu",
        "metrics",
        "model_sizes",
        "paths",
        "poisson",
        "observe",
        "results",
        "requirements",
        "process",
        "environment",
        "lazy_opacus",
        "devices",
        "capacity",
        "search",
        "workers",
    ],
]
LINE = {unit: line for line, units in enumerate(LAYERS) for unit in units}

# Where each heavy library may be imported: folders and files of the package.
HOMES = {
    "mlflow": ("tracking/",),
    "plotly": ("reports/",),
    "jinja2": ("reports/",),
    "matplotlib": ("reports/",),
    "pandas": ("reports/",),
    "scipy": ("reports/",),
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
    """Units of dpprof that a module imports from; `dpprof.__version__` and the like are no unit's."""
    parts = [name.split(".") for name in imports(source)]
    return {p[1] for p in parts if p[0] == "dpprof" and len(p) > 1 and not p[1].startswith("__")}


def libraries_imported(source: str, *, inside_functions: bool = True) -> set[str]:
    return {name.partition(".")[0] for name in imports(source, inside_functions=inside_functions)}


def may_import(unit: str, other: str) -> bool:
    last = len(LAYERS) - 1
    return unit == other or LINE[unit] < LINE[other] or LINE[unit] == LINE[other] == last


def test_every_import_is_seen_wherever_it_stands() -> None:
    source = """
import mlflow.entities as entities
from dpprof import __version__, lazy_opacus
if TYPE_CHECKING:
    from dpprof.results import Result
class A:
    def f(self):
        try:
            import dpprof.sweep, torch
        except ImportError:
            from plotly import graph_objects
"""
    assert units_imported(source) == {"lazy_opacus", "results", "sweep"}
    assert libraries_imported(source) == {"mlflow", "dpprof", "torch", "plotly"}
    assert libraries_imported(source, inside_functions=False) == {"mlflow", "dpprof"}


@pytest.mark.parametrize(
    ("unit", "other", "allowed"),
    [
        ("cli", "sweep", True),
        ("sweep", "cli", False),
        ("launch", "measure", True),
        ("tracking", "reports", False),
        ("passes", "passes", True),
        ("passes", "trainers", False),
        ("config", "settings", True),
        ("settings", "config", True),
        ("config", "workloads", False),
    ],
)
def test_the_rule_itself(unit: str, other: str, allowed: bool) -> None:
    assert may_import(unit, other) is allowed


def test_every_unit_has_its_line() -> None:
    assert {unit_of(file) for file in FILES} == {*LINE, "__init__"}


@pytest.mark.parametrize("file", FILES)
def test_a_file_imports_only_from_the_lines_below(file: str) -> None:
    imported = units_imported((PACKAGE / file).read_text(encoding="utf-8"))
    allowed = set() if file == "__init__.py" else {unit for unit in LINE if may_import(unit_of(file), unit)}
    assert imported <= allowed


@pytest.mark.parametrize("file", FILES)
def test_heavy_libraries_stay_at_home(file: str) -> None:
    imported = libraries_imported((PACKAGE / file).read_text(encoding="utf-8"))
    assert {library for library in imported & HOMES.keys() if not file.startswith(HOMES[library])} == set()


@pytest.mark.parametrize("library", HOMES)
def test_every_home_is_lived_in(library: str) -> None:
    homes = {file: (PACKAGE / file).read_text(encoding="utf-8") for file in FILES}
    users = [file for file, source in homes.items() if library in libraries_imported(source)]
    assert all(any(user.startswith(home) for user in users) for home in HOMES[library])


@pytest.mark.parametrize("file", [file for file in FILES if unit_of(file) == "cli"])
def test_the_command_line_imports_torch_only_inside_functions(file: str) -> None:
    source = (PACKAGE / file).read_text(encoding="utf-8")
    assert "torch" not in libraries_imported(source, inside_functions=False)


@pytest.mark.parametrize(
    ("module", "unwanted"),
    [
        ("dpprof.cli.main", {"torch", "mlflow", "plotly", "opacus"}),
        ("dpprof.measure", {"mlflow", "plotly"}),
        ("dpprof.experiment", {"mlflow", "plotly"}),
    ],
)
def test_importing_a_module_loads_no_library_it_does_not_need(module: str, unwanted: set[str]) -> None:
    program = f"import sys, {module}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert module in loaded
    assert loaded & unwanted == set()
