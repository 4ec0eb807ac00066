"""Finds what a user names: a sweep folder, a run folder, or a sweep or run in the MLflow store."""

from collections.abc import Callable, Iterable
from pathlib import Path

from dpprof.errors import ConfigError, DpprofError
from dpprof.paths import RunFolder, SweepFolder
from dpprof.results import Result, read_result


def read_sources(
    given: Iterable[str], into: Path, warn: Callable[[str], None], option: str = "SOURCE"
) -> dict[str, list[Result]]:
    """The results of everything named, by the sweep that they belong to; of each run one.

    Runs are fetched from MLflow into the folder `into`, only if no folder has the name. A run that cannot be
    read is left out with a warning. Raises ConfigError if nothing has one of the names.
    """
    found: dict[str, list[Result]] = {}
    homes: dict[str, str] = {}
    seen: set[Path] = set()
    for name in given:
        source, home, folders = _folders(name, into, option)
        if homes.setdefault(source, home) != home:
            source = name
        for run_name, folder in folders:
            if folder.path.resolve() in seen:
                continue
            seen.add(folder.path.resolve())
            try:
                found.setdefault(source, []).append(read_result(folder, run_name))
            except DpprofError as error:
                warn(f"left out {run_name}: {error}")
    if not any(found.values()):
        raise ConfigError(f"{option}: got {', '.join(given)}, allowed: what holds at least one run")
    return found


def _folders(name: str, into: Path, option: str) -> tuple[str, str, list[tuple[str, RunFolder]]]:
    """The name of the sweep, where it is, and its runs."""
    path = Path(name)
    if RunFolder(path).config.exists():
        path = path.resolve()
        return path.parent.name, str(path.parent), [(path.name, RunFolder(path))]
    runs = SweepFolder(path).runs()
    if runs:
        path = path.resolve()
        return path.name, str(path), [(run.name, run) for run in runs]
    if path.exists():
        raise ConfigError(f"{option}: got {name!r}, allowed: a folder with a run or runs in it")

    from dpprof.tracking.fetch import fetch
    from dpprof.tracking.store import store_name

    fetched = fetch(name, into)
    if fetched is None:
        raise ConfigError(
            f"{option}: got {name!r}, allowed: a sweep folder, a run folder, or the name or id of a sweep or "
            f"run in MLflow at {store_name()}"
        )
    source, folders = fetched
    return source, store_name(), folders
