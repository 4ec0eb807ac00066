"""Holds the packages in their levels: which may import which, and the home of each heavy library."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import dpprof

PACKAGE = Path(dpprof.__file__).parent

# From top to bottom. A package imports from the levels below its own, and from no other.
LEVELS = [
    ("cli",),
    ("own_loop",),
    ("pages",),
    ("drive",),
    ("tracking", "measure"),
    ("findings",),
    ("record",),
    ("privacy", "config"),
    ("vocabulary",),
    ("json_files",),
    ("process", "errors"),
]
LEVEL = {name: level for level, names in enumerate(LEVELS) for name in names}
# How many packages import from how many others, in pairs. The public door is one file, and does not count.
MOST_ARROWS = 53
DOOR = "own_loop"
# The modules within a package, in the same way. What is not listed lies above them all.
INNER = {
    "drive": [
        "campaign",
        "logbook",
        "run",
        "endings",
        "counters",
        "workload_check",
        "jobs",
        "launch",
        "ncu",
    ],
    "measure": ["passes", "trainers", "workloads", "observe", "guard"],
}
# The measuring process is another program: the one that drives it knows its command line alone.
DRIVING = ("cli", "own_loop", "drive", "tracking", "pages")
# Files of both programs at once: what they measure runs in their own process.
IN_PROCESS = ("drive/launch/in_process.py", "own_loop.py")

# What `import dpprof` gives, imported when it is asked for.
FACE = (
    "dpprof.measure.workloads.workload.Workload",
    "dpprof.own_loop",
    "dpprof.own_loop.phase",
    "dpprof.own_loop.profile",
)

# Where each heavy library may be imported: folders and files of the package.
HOMES = {
    "mlflow": ("tracking/",),
    "jinja2": ("pages/",),
    "matplotlib": ("pages/",),
    "pandas": ("pages/",),
    "scipy": ("findings/", "privacy/physical_batches.py"),
    "opacus": (
        "measure/trainers/opacus/",
        "measure/workloads/dp_attention.py",
        "privacy/prv.py",
        "privacy/rdp.py",
    ),
    "peft": ("measure/workloads/trainable.py",),
    "click": ("cli/",),
    "rich": ("cli/", "pages/", "own_loop.py"),
    "pydantic": ("json_files.py",),
    "submitit": ("drive/launch/on_slurm/",),
}
# What importing a module must not load.
LEFT_OUT = {
    "dpprof.cli.main": {"torch", "mlflow", "matplotlib", "opacus", "peft", "pydantic", "submitit"},
    "dpprof.measure.entry": {"torch", "mlflow", "matplotlib", "pydantic"},
    "dpprof.measure.experiment": {"mlflow", "matplotlib", "peft", "pydantic"},
    "dpprof.privacy.accounting": {"torch", "opacus", "scipy"},
    "dpprof.privacy.physical_batches": {"torch", "opacus", "scipy"},
}


def sources() -> dict[str, str]:
    """The text of every file of the package, by its path."""
    paths = sorted(PACKAGE.rglob("*.py"))
    return {path.relative_to(PACKAGE).as_posix(): path.read_text(encoding="utf-8") for path in paths}


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


def libraries(source: str, *, inside_functions: bool = True) -> set[str]:
    """The libraries that a module imports."""
    return {name.partition(".")[0] for name in imports(source, inside_functions=inside_functions)}


def forbidden(file: str, source: str) -> Iterator[str]:
    """The imports of a file that break a rule, in words."""
    room, _, rest = file.removesuffix(".py").partition("/")
    room = "cli" if room == "__main__" else room  # `python -m dpprof`: the command line by another name
    for name in imports(source):
        package, _, inside = name.partition(".")
        other, _, within = inside.partition(".")
        if package != "dpprof" or other not in LEVEL:
            continue
        if room == "__init__":
            if name not in FACE:
                yield f"{file} imports {name}, which is none of its names"
            continue
        if other != room and LEVEL[other] <= LEVEL[room]:
            yield f"{file} imports {name}, which does not lie below it"
        if other == "measure" and room in DRIVING and file not in IN_PROCESS:
            yield f"{file} imports {name} of the measuring process"
        inner, here, there = INNER.get(room, []), rest.partition("/")[0], within.partition(".")[0]
        is_above = there not in inner or (here in inner and inner.index(there) < inner.index(here))
        if other == room and here in inner and is_above:
            yield f"{file} imports {name}, which lies above it"


def modules(files: dict[str, str]) -> dict[str, set[str]]:
    """The modules of the package that each module imports."""
    known = {file.removesuffix(".py").removesuffix("/__init__").replace("/", "."): file for file in files}

    def module(name: str) -> str:
        inside = name.removeprefix("dpprof.")
        return inside if inside in known else inside.rpartition(".")[0]

    return {
        name: {module(other) for other in imports(files[file]) if other.startswith("dpprof.")} - {name, ""}
        for name, file in known.items()
    }


def test_imports_point_one_way() -> None:
    files = sources()
    assert {file.partition("/")[0].removesuffix(".py") for file in files} == {*LEVEL, "__init__", "__main__"}
    assert [text for file, source in files.items() for text in forbidden(file, source)] == []
    TopologicalSorter(modules(files)).prepare()  # raises for modules that import each other in a circle
    arrows = {
        (module.partition(".")[0], other.partition(".")[0])
        for module, others in modules(files).items()
        for other in others
    }
    between = {
        (one, other) for one, other in arrows if one != other and one in LEVEL and DOOR not in (one, other)
    }
    assert len(between) <= MOST_ARROWS


def test_heavy_libraries_stay_at_home() -> None:
    users = {file: libraries(source) & HOMES.keys() for file, source in sources().items()}
    strays = [(file, lib) for file, libs in users.items() for lib in libs if not file.startswith(HOMES[lib])]
    assert strays == []
    homes = [(home, library) for library, homes in HOMES.items() for home in homes]
    empty = [(h, lib) for h, lib in homes if not any(f.startswith(h) and lib in users[f] for f in users)]
    assert empty == []
    at_top = {file: libraries(source, inside_functions=False) for file, source in sources().items()}
    assert [file for file in at_top if file.startswith("cli/") and "torch" in at_top[file]] == []


def test_a_module_loads_no_library_that_it_does_not_need() -> None:
    for module, unwanted in LEFT_OUT.items():
        program = f"import sys, {module}; print(*sys.modules)"
        done = subprocess.run(
            [sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True
        )
        loaded = set(done.stdout.split())
        assert module in loaded
        assert loaded & unwanted == set(), module


def test_the_rules_see_what_breaks_them() -> None:
    source = """
import mlflow.entities as entities
from dpprof import __version__, process
if TYPE_CHECKING:
    from dpprof.record.figures.results import Result
class A:
    def f(self):
        try:
            import dpprof.measure.entry, torch
        except ImportError:
            from matplotlib import figure
"""
    assert libraries(source) == {"mlflow", "dpprof", "torch", "matplotlib"}
    assert libraries(source, inside_functions=False) == {"mlflow", "dpprof"}
    found = {file: len(list(forbidden(file, source))) for file in ("cli/a.py", IN_PROCESS[0], "record/a.py")}
    assert found == {"cli/a.py": 1, IN_PROCESS[0]: 0, "record/a.py": 1}
    upwards = "from dpprof.measure.experiment import run_experiment"
    assert len(list(forbidden("measure/passes/a.py", upwards))) == 1
    assert list(forbidden("measure/entry.py", upwards)) == []
