"""Files and functions stay short enough to be read at once."""

import ast
from pathlib import Path

ROOT = Path(__file__).parent.parent
MOST_LINES, MOST_LINES_OF_A_FUNCTION = 400, 50


def test_files_and_functions_are_short() -> None:
    folders = ("dpprof", "tests", "scripts", "benchmarks")
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    assert paths
    too_long = []
    for path in paths:
        text = path.read_text(encoding="utf-8")
        if text.count("\n") > MOST_LINES:
            too_long.append(f"{path.relative_to(ROOT)}")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno is not None
                if node.end_lineno - node.lineno + 1 > MOST_LINES_OF_A_FUNCTION:
                    too_long.append(f"{path.relative_to(ROOT)}: {node.name}")
    assert too_long == []
