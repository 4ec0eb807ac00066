"""Prints the test files that import what changed, nearest first: themselves changed, one import away, ...

    python scripts/tests_of_changes.py

What changed differs from the tree that `.ci/run` passed last, else from where the branch left main, else from
the last commit but one: by commits, changes that are not committed, and files that git does not know.
`import_graph.py` reads the imports. Standard error says what was compared, and which changed files no test is
found for.
"""

import subprocess
import sys
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

from import_graph import ImportGraph

# Tests that read files without importing them: one step away, and the first of those.
READERS = (
    ("*.py", "tests/test_sizes.py"),
    ("dpprof/*.py", "tests/test_layers.py"),
    ("*.md", "tests/test_docs.py"),
    ("*.sh", "tests/test_scripts.py"),
    (".ci/run", "tests/test_scripts.py"),
    ("MLproject", "tests/test_mlproject.py"),
)


@dataclass(frozen=True)
class Found:
    """What changed since `base`, and the tests, nearest first: path -> number of imports between."""

    base: str
    changed: list[str]
    tests: dict[str, int]
    untested: list[str]
    unread: list[str]

    def lines(self) -> list[str]:
        """What was found, in words."""
        return [
            f"Changed since {self.base}: {number(len(self.changed), 'file')}, which "
            f"{number(len(self.tests), 'test file')} can reach.",
            *([f"No test is found for: {', '.join(self.untested)}"] if self.untested else []),
            *([f"Not read for imports: {', '.join(self.unread)}"] if self.unread else []),
        ]


def number(count: int, noun: str) -> str:
    """A count with its noun."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def git(root: Path, *arguments: str) -> str | None:
    """What git prints, without the last line's end; None if it fails."""
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    return done.stdout.rstrip("\n") if done.returncode == 0 else None


def listed(root: Path, *arguments: str) -> list[str]:
    """The paths that git prints with `-z`. Raises CalledProcessError."""
    done = subprocess.run(["git", *arguments, "-z"], cwd=root, stdout=subprocess.PIPE, text=True, check=True)
    return [path for path in done.stdout.split("\0") if path]


def base_of(root: Path) -> tuple[str, str]:
    """What to compare with, and its name in words."""
    mark = root / (git(root, "rev-parse", "--git-dir") or ".git") / "ci-green"
    tree = mark.read_text().strip() if mark.exists() else ""
    if tree and git(root, "cat-file", "-e", f"{tree}^{{tree}}") is not None:
        return tree, f"the tree that .ci/run passed last ({tree[:9]})"
    branch = git(root, "symbolic-ref", "--short", "HEAD")
    for name in ("origin/main", "main@{upstream}", "main"):
        commit = git(root, "merge-base", "HEAD", name) if name != branch else None
        if commit:
            return commit, f"the merge base with {name} ({commit[:9]})"
    if git(root, "rev-parse", "--verify", "HEAD~1") is not None:
        return "HEAD~1", "the last commit but one"
    empty = git(root, "hash-object", "-t", "tree", "/dev/null")
    return empty or "HEAD", "the beginning"


def find_tests(root: Path) -> Found:
    """The tests of what changed in a checkout."""
    base, words = base_of(root)
    tracked, unknown = listed(root, "ls-files"), listed(root, "ls-files", "--others", "--exclude-standard")
    changed = sorted({*listed(root, "diff", "--name-only", "--no-renames", base), *unknown})
    graph = ImportGraph(root, {*tracked, *unknown, *changed})
    steps = graph.steps_to(changed)
    readers = {test: 1 for pattern, test in READERS if any(fnmatch(path, pattern) for path in changed)}
    reached = readers | {
        path: min(far, readers.get(path, far)) for path, far in steps.items() if is_test(path)
    }
    order = sorted(
        (far, path not in readers, path) for path, far in reached.items() if (root / path).exists()
    )
    tests = {path: far for far, _, path in order}
    return Found(words, changed, tests, [path for path in changed if not has_test(graph, path)], graph.unread)


def is_test(path: str) -> bool:
    """Whether pytest collects a file."""
    return path.startswith("tests/") and fnmatch(PurePosixPath(path).name, "test_*.py")


def has_test(graph: ImportGraph, path: str) -> bool:
    """Whether a test reaches a file, or reads files like it that are not Python."""
    reads = not path.endswith(".py") and any(fnmatch(path, pattern) for pattern, _ in READERS)
    return reads or any(map(is_test, graph.steps_to([path])))


if __name__ == "__main__":
    found = find_tests(Path(__file__).parent.parent)
    print("\n".join(found.lines()), file=sys.stderr)
    print("\n".join(found.tests))
