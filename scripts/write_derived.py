"""Writes what is derived from the code: the tables in docs/parameters.md and docs/api.md.

    python scripts/write_derived.py

An option is declared in one place; a test holds the files equal to what this writes.
"""

import importlib
import inspect
from dataclasses import Field
from pathlib import Path
from typing import Any

from dpprof.config.options import COMMANDS, launching_options, training_options
from dpprof.vocabulary.settings import allowed

ROOT = Path(__file__).parent.parent
PARAMETERS = ROOT / "docs" / "parameters.md"
API = ROOT / "docs" / "api.md"
TABLE_BEGIN = "<!-- made by scripts/write_derived.py -->\n"
TABLE_END = "<!-- end of what it made -->\n"
# The names that other packages may import.
PUBLIC = {
    "dpprof": ("Workload", "profile", "phase"),
    "dpprof.measure.workloads.huggingface.adapt": ("adapt",),
    "dpprof.vocabulary.settings": ("setting",),
    "dpprof.vocabulary.workload_info": ("WorkloadInfo",),
    "dpprof.vocabulary.trainer_info": ("TrainerInfo",),
    "dpprof.measure.trainers.base": ("TrainerBase",),
    "dpprof.vocabulary.launcher_info": ("LauncherInfo",),
    "dpprof.drive.launch.launcher": ("Launcher", "Handle", "Machine"),
    "dpprof.drive.launch.job": ("Job", "Exit"),
    "dpprof.drive.launch.local": ("LocalMachine",),
}


def default_of(field: "Field[Any]") -> Any:
    """A default as the command line writes it."""
    return str(field.default).lower() if isinstance(field.default, bool) else field.default


def parameter_table() -> str:
    """The table of options: every one of every command, once; then those that only some trainers, workloads
    and launchers have.
    """
    rows = ["| parameter | default | of | meaning |", "| --- | --- | --- | --- |"]
    seen = set()
    for takes in COMMANDS.values():
        for field in takes.settings:
            if field.name in seen:
                continue
            seen.add(field.name)
            takers = [c for c, other in COMMANDS.items() if field.name in {f.name for f in other.settings}]
            of = "all" if len(takers) == len(COMMANDS) else ", ".join(takers)
            others = [
                f"; {command}: `{default_of(other)}`"
                for command, each in COMMANDS.items()
                for other in each.settings
                if other.name == field.name and other.default != field.default
            ]
            rows.append(row(field, "".join(others), of))
    for own in (training_options() | launching_options()).values():
        rows.append(row(own.field, "", f"with {', '.join(own.takers)}"))
    return "\n".join(rows) + "\n"


def row(field: "Field[Any]", other_defaults: str, of: str) -> str:
    """A row of the table."""
    words = field.metadata["help"].removesuffix(".") + "."
    if field.metadata["choices"]:
        words += f" One of: {allowed(field)}."
    default = f"`{default_of(field)}`".replace("``", "")
    return f"| `{field.name}` | {default}{other_defaults} | {of} | {words} |"


def api_table() -> str:
    """The table of public names: where each is imported from, and the first line of its docstring."""
    rows = ["| import | what it is |", "| --- | --- |"]
    for module, names in PUBLIC.items():
        for name in names:
            text = inspect.getdoc(getattr(importlib.import_module(module), name)) or ""
            first = " ".join(text.partition("\n\n")[0].split())
            rows.append(f"| `from {module} import {name}` | {first} |")
    return "\n".join(rows) + "\n"


def with_table(text: str, table: str) -> str:
    """A page with its table made anew."""
    before, _, rest = text.partition(TABLE_BEGIN)
    _, _, after = rest.partition(TABLE_END)
    return before + TABLE_BEGIN + table + TABLE_END + after


if __name__ == "__main__":
    PARAMETERS.write_text(with_table(PARAMETERS.read_text(), parameter_table()))
    API.write_text(with_table(API.read_text(), api_table()))
