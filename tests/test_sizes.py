"""Files and functions stay short enough to be read at once, and the whole does not grow unnoticed.

Code lines are those without docstrings, comments, blanks and imports. What a new figure, trainer or report
takes is in `test_additions.py`.
"""

import ast
import io
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
MOST_LINES, MOST_LINES_OF_A_FUNCTION = 400, 50
# Of dpprof/ without measure/. Lower it where a change makes room.
MOST_CODE_LINES = 15_450
MOST_LINES_OF_MLPROJECT = 120
_NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
_NO_CODE |= {tokenize.ENDMARKER}


def sources(*folders: str) -> Iterator[tuple[Path, str]]:
    """Each module of these folders, with its text."""
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path.relative_to(ROOT), path.read_text(encoding="utf-8")


def test_files_and_functions_are_short() -> None:
    too_long = []
    for path, text in sources("dpprof", "tests", "scripts", "benchmarks", "examples"):
        if text.count("\n") > MOST_LINES:
            too_long.append(f"{path}")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno is not None
                if node.end_lineno - node.lineno + 1 > MOST_LINES_OF_A_FUNCTION:
                    too_long.append(f"{path}: {node.name}")
    assert too_long == []


def code_lines(text: str) -> int:
    """The lines of a module that do something."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        left_out: ast.stmt | None = node if isinstance(node, ast.Import | ast.ImportFrom) else None
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            left_out = node.body[0] if ast.get_docstring(node) is not None else None
        if left_out is not None:
            lines.difference_update(range(left_out.lineno, (left_out.end_lineno or 0) + 1))
    return len(lines)


def test_code_lines_are_counted_without_what_does_nothing() -> None:
    nothing = '"""A module."""\nimport os\n\n\n# A comment.\n'
    assert code_lines(nothing) == 0
    assert code_lines(f'{nothing}def f():\n    """Say."""\n    return (\n        os\n    )\n') == 4


def test_the_whole_does_not_grow_unnoticed() -> None:
    counted = sum(code_lines(text) for path, text in sources("dpprof") if path.parts[1] != "measure")
    assert MOST_CODE_LINES / 2 < counted <= MOST_CODE_LINES
    assert len((ROOT / "MLproject").read_text(encoding="utf-8").splitlines()) <= MOST_LINES_OF_MLPROJECT


def test_no_tuple_is_packed_into_another_to_save_lines() -> None:
    packed = []
    for path, text in sources("dpprof", "scripts", "benchmarks", "examples"):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Starred) and isinstance(node.value, ast.Tuple | ast.List):
                packed.append(f"{path}:{node.lineno}")
    assert packed == []
