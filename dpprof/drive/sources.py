"""Finds what a user names: folders, exported files, or sweeps and runs in MLflow."""

from collections.abc import Callable, Iterable
from pathlib import Path

from dpprof.errors import ConfigError, DpprofError, refuse
from dpprof.findings.comparison.comparison import Comparison, compare, merge
from dpprof.json_files import read_json
from dpprof.record.figures.results import Result, read_results
from dpprof.record.folder import RunFolder, SweepFolder

Folders = dict[tuple[str, str], RunFolder]


def read_comparison(
    given: Iterable[str], into: Path, warn: Callable[[str], None], option: str = "SOURCE"
) -> tuple[Comparison, Folders]:
    """Compare everything named; return the comparison and the run folders by source and run name.

    A name is a sweep folder, a run folder, a file of `dpprof export --format json`, or a sweep or run in
    MLflow (name or id), fetched into `into`. Warns of unreadable runs. Raises ConfigError if a name is not
    found.
    """
    results: dict[str, list[Result]] = {}
    folders: Folders = {}
    exported: list[Comparison] = []
    homes: dict[str, str] = {}
    seen: set[Path] = set()
    for name in given:
        if Path(name).is_file():
            try:
                exported.append(Comparison.from_data(read_json(Path(name))))
            except DpprofError as error:
                allowed = f"among files those of `dpprof export --format json`; {error}"
                raise refuse(option, name, allowed) from None
            continue
        source, home, found = _folders(name, into, option)
        if homes.setdefault(source, home) != home:
            source = name
        new = [(run_name, folder) for run_name, folder in found if folder.path.resolve() not in seen]
        seen |= {folder.path.resolve() for _, folder in new}
        readable, damaged = read_results(new)
        results.setdefault(source, []).extend(readable)
        folders |= {(source, result.name): result.folder for result in readable}
        for text in damaged:
            warn(f"left out {text}")
    comparison = merge([compare(" and ".join(results), results), *exported])
    if not comparison.cells:
        raise ConfigError(f"{option}: got {', '.join(given)}, allowed: what holds at least one run")
    return comparison, folders


def _folders(name: str, into: Path, option: str) -> tuple[str, str, list[tuple[str, RunFolder]]]:
    """Return the sweep's name, its location, and its runs."""
    path = Path(name)
    if RunFolder(path).config.exists():
        path = path.resolve()
        return path.parent.name, str(path.parent), [(path.name, RunFolder(path))]
    runs = SweepFolder(path).runs()
    if runs:
        path = path.resolve()
        return path.name, str(path), [(run.name, run) for run in runs]
    if path.exists():
        raise refuse(option, name, "a folder with a run or runs in it")

    from dpprof.tracking.fetch import fetch
    from dpprof.tracking.store import store_name

    fetched = fetch(name, into)
    if fetched is None:
        allowed = (
            "a sweep folder, a run folder, a file of `dpprof export`, or the name or id of a sweep or run"
        )
        raise refuse(option, name, f"{allowed} in MLflow at {store_name()}")
    source, folders = fetched
    return source, store_name(), folders
