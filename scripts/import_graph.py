"""Which files of a checkout each of its Python files needs, read from the sources without importing them.

A file needs what it imports, in functions too, but not what only `if TYPE_CHECKING` imports. Strings count
where they name a module (`"dpprof.measure.passes.clean"`, `"example_odd:make"`, `-m dpprof`) or a file of the
checkout (`ROOT / "tests" / "audited_commands.py"`). What a conftest.py imports is needed by the files that
name the function or fixture that uses it, not by all tests. Likewise what a package imports in `__getattr__`:
by those that ask for that name.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from itertools import pairwise
from pathlib import Path, PurePosixPath

CONFTEST, INIT = "conftest.py", "__init__.py"
DOTTED = re.compile(r"[A-Za-z_]\w*(\.\w+)*(\.|:\w+)?")
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class ImportGraph:
    """What each source needs, by path from the root: `needs`. A part of a conftest.py is `CONFTEST::NAME`.

    `files` are all files of the checkout, also those that were just deleted: others may still name them.
    `unread` gets the sources that cannot be parsed, and so seem to need nothing.
    """

    def __init__(self, root: Path, files: Collection[str]) -> None:
        self.unread: list[str] = []
        sources = sorted(file for file in files if file.endswith(".py"))
        trees = {file: self._parsed(root, file) for file in sources}
        packages = {file.removesuffix(f"/{INIT}") for file in sources if file.endswith(f"/{INIT}")}
        self._dotted = {file: dotted_name(file, packages) for file in sources}
        self._modules: dict[str, set[str]] = defaultdict(set)
        for file, name in self._dotted.items():
            self._modules[name].add(file)
        self._named: dict[str, set[str]] = defaultdict(set)
        for file in files:
            self._named[PurePosixPath(file).name].add(file)
        self._faces = {file: face(trees[file]) for file in sources if file.endswith(INIT)}
        self._parts = {
            file: {part.name: part for part in trees[file].body if isinstance(part, Definition)}
            for file in sources
            if PurePosixPath(file).name == CONFTEST
        }
        self.needs: dict[str, set[str]] = {}
        for file, tree in trees.items():
            if file in self._parts:
                self.needs |= self._needs_of_parts(file, tree)
            else:
                self.needs[file] = self._needs(tree, file) | self._fixtures(tree, file)

    def steps_to(self, changed: Iterable[str]) -> dict[str, int]:
        """The number of imports from each source to the nearest changed file, of those that reach one."""
        users = defaultdict(set)
        for file, needs in self.needs.items():
            for other in needs:
                users[other].add(file)
        steps = dict.fromkeys(sorted(changed), 0)
        queue = list(steps)
        for file in queue:
            found = users[file] | (self._loaded_with(file) if steps[file] == 0 else set())
            new = sorted(found - steps.keys())
            steps |= dict.fromkeys(new, steps[file] + 1)
            queue += new
        return steps

    def _loaded_with(self, file: str) -> set[str]:
        """The sources that load a file without naming it: a conftest.py, or a package of what they import."""
        folder, _, name = f"./{file}".rpartition("/")
        inside = f"{folder}/".removeprefix("./")
        if name == CONFTEST:
            return {source for source in self.needs if source.startswith(inside)}
        if name == INIT:
            return {
                source for source, needs in self.needs.items() if any(n.startswith(inside) for n in needs)
            }
        return set()

    def _parsed(self, root: Path, file: str) -> ast.Module:
        try:
            return ast.parse((root / file).read_bytes())
        except FileNotFoundError:
            pass
        except (SyntaxError, ValueError) as error:
            self.unread.append(f"{file} ({error})")
        return ast.Module([], [])

    def _needs_of_parts(self, conftest: str, tree: ast.Module) -> dict[str, set[str]]:
        """What each part of a conftest.py needs: its imports, and what it names of the file's."""
        parts = self._parts[conftest]
        imported = {
            alias.asname or alias.name.partition(".")[0]: self._needs(node, conftest)
            for node in tree.body
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        }
        found = {}
        for name, part in parts.items():
            words = {node.id for node in ast.walk(part) if isinstance(node, ast.Name)} | set(asked(part))
            needs = self._needs(part, conftest).union(*(imported[word] for word in words & imported.keys()))
            found[f"{conftest}::{name}"] = needs | {f"{conftest}::{word}" for word in words & parts.keys()}
        return found

    def _fixtures(self, tree: ast.Module, file: str) -> set[str]:
        """The parts of each conftest.py that pytest runs for a file: fixtures that it asks for, and hooks."""
        words = set(asked(tree))
        return {
            f"{conftest}::{part}"
            for conftest, parts in self._parts.items()
            if file.startswith(conftest.removesuffix(CONFTEST))
            for part in parts
            if part in words or part.startswith("pytest_")
        }

    def _needs(self, tree: ast.AST, file: str) -> set[str]:
        found: set[str] = set()
        for node in executed(tree, is_package=file in self._faces):
            match node:
                case ast.Import(names=names):
                    found = found.union(*(self._module(alias.name) for alias in names))
                case ast.ImportFrom(module=module, names=names, level=level):
                    home = [*self._home(file, level), *filter(None, [module])]
                    found = found.union(*(self._module(".".join([*home, alias.name])) for alias in names))
                case ast.Attribute(value=ast.Name(id=package), attr=name):
                    if self._modules.get(package, set()) & self._faces.keys():
                        found |= self._module(f"{package}.{name}")
                case ast.BinOp(op=ast.Div()):
                    found |= self._file("/".join(path_parts(node)))
                case ast.Constant(value=str(text)):
                    found |= self._file(text) | self._string(text)
                case ast.List(elts=words) | ast.Tuple(elts=words) | ast.Call(args=words):
                    texts = [str(word.value) if isinstance(word, ast.Constant) else "" for word in words]
                    runs = [module for option, module in pairwise(texts) if option == "-m"]
                    found = found.union(*(self._modules.get(f"{module}.__main__", ()) for module in runs))
        return found - {file}

    def _home(self, file: str, level: int) -> list[str]:
        """The package that a relative import begins at; nothing for one that is not relative."""
        parts = self._dotted[file].split(".")
        return parts[: len(parts) - level + (file in self._faces)] if level else []

    def _module(self, dotted: str, least: int = 1) -> set[str]:
        """The file of a module, or of one that has this name, and the file that it has the name from."""
        parts = dotted.split(".")
        for end in range(len(parts), least - 1, -1):
            files = self._modules.get(".".join(parts[:end]))
            if files:
                name = "".join(parts[end : end + 1])
                shared = {f"{file}::{name}" for file in files if name in self._parts.get(file, ())}
                origins = (self._faces[file][name] for file in files if name in self._faces.get(file, ()))
                return files.union(shared, *(self._origin(origin) for origin in origins))
        return set()

    def _origin(self, dotted: str) -> set[str]:
        return self._modules.get(dotted) or self._modules.get(dotted.rpartition(".")[0]) or set()

    def _string(self, text: str) -> set[str]:
        """What a string names: `package.module`, `module:attribute`, or all modules of `package.inner.`."""
        if not DOTTED.fullmatch(text):
            return set()
        if text.endswith("."):
            depth = text.count(".")
            inside = [n for n in self._modules if n.startswith(text) and n.count(".") == depth > 1]
            return set().union(*(self._modules[name] for name in inside))
        module, attribute, _ = text.partition(":")
        return self._module(module, least=1 if attribute else 2)

    def _file(self, text: str) -> set[str]:
        """The files that a string names, by their name or the end of their path."""
        name = text.rpartition("/")[2]
        files = self._named.get(name, set()) if "." in name else set()
        return {file for file in files if f"/{file}".endswith(f"/{text}")}


def dotted_name(file: str, packages: Collection[str]) -> str:
    """The name that a file is imported by: from the first folder above it that is no package."""
    path = PurePosixPath(file)
    parts = [] if path.name == INIT else [path.stem]
    for folder in path.parents:
        if str(folder) not in packages:
            break
        parts.insert(0, folder.name)
    return ".".join(parts)


def face(init: ast.Module) -> dict[str, str]:
    """The names that a package imports, under `if TYPE_CHECKING` and in functions too, and from where."""
    return {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in ast.walk(init)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def executed(tree: ast.AST, *, is_package: bool) -> Iterator[ast.AST]:
    """All nodes but those under `if TYPE_CHECKING`, and in a package's `__getattr__`."""
    queue: list[ast.AST] = [tree]
    while queue:
        match node := queue.pop():
            case ast.If(test=ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING")):
                queue += node.orelse
            case ast.FunctionDef(name="__getattr__") if is_package:
                pass
            case _:
                yield node
                queue += ast.iter_child_nodes(node)


def asked(tree: ast.AST) -> Iterator[str]:
    """The fixtures that a source may ask for: names of parameters, and arguments of `usefixtures`."""
    for node in ast.walk(tree):
        match node:
            case ast.arg(arg=name):
                yield name
            case ast.Call(func=ast.Attribute(attr="usefixtures" | "getfixturevalue"), args=args):
                yield from (str(arg.value) for arg in args if isinstance(arg, ast.Constant))


def path_parts(node: ast.expr) -> list[str]:
    """The last parts of `folder / "part" / "part"`."""
    match node:
        case ast.Constant(value=str(text)):
            return [text]
        case ast.BinOp(left=left, op=ast.Div(), right=ast.Constant(value=str(text))):
            return [*path_parts(left), text]
    return []
