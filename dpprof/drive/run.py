"""Runs one experiment in its folder, or finds an earlier result that would come out the same again.

An experiment is repeated in a hidden folder beside its run folder; the old results stay until the end.
"""

import dataclasses
import glob
import importlib.metadata
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from dpprof import __version__
from dpprof.config.experiment import ExperimentConfig
from dpprof.drive import counters
from dpprof.drive.endings import checked_result, failed_result, write_how_it_ended
from dpprof.drive.jobs import Runner, Stopped
from dpprof.drive.launch.job import measuring_job
from dpprof.errors import DpprofError
from dpprof.process import processor
from dpprof.record.figures.results import FAILED, KILLED, Result, read_result
from dpprof.record.files import remove
from dpprof.record.folder import RunFolder, SweepFolder
from dpprof.record.link import Link
from dpprof.record.record import Failure, FailureKind, PassStatus
from dpprof.vocabulary.trainers import TRAINERS
from dpprof.vocabulary.workloads import WORKLOADS, listed

# Packages that an estimate depends on, besides its configuration.
_PACKAGES = ("torch", "opacus", "transformers", "peft")
_OURS = "dpprof."
_AGAIN, _BEFORE = ".again", ".before"


def drive_experiment(config: ExperimentConfig, folder: RunFolder, runner: Runner) -> Result:
    """Measure a resolved experiment in the folder; the caller writes its pages.

    The time-out is for the experiment, and again for its counters. The status is KILLED if the runner's stop
    ended it. Raises OSError if nothing can be kept; other errors make a failed result. A folder that exists
    keeps its content until there are new figures.
    """
    is_new = not folder.path.exists()
    into = folder if is_new else beside(folder)
    try:
        into.create(config)
        needs_ncu = config.counters == "ncu"
        if needs_ncu and (lacking := counters.lacking(config, runner.launcher.machine)):
            into.write_error(Failure(FailureKind.ERROR, lacking))
        else:
            job = measuring_job(config, into, runner.timeout_s)
            # A process that starts while this one ends would disturb the counters, which come after it.
            another_follows = runner.another_follows and config.counters == "off"
            ended = runner.measure(dataclasses.replace(job, another_follows=another_follows))
            write_how_it_ended(config, into, ended, runner.timeout_s)
            record = into.read_record()
            if config.counters != "off" and into.read_error() is None and record is not None:
                counters.count(config, into, record, runner)
        result = checked_result(config, into)
    except Stopped:
        raise
    except Exception as error:
        result = failed_result(config, into, error, stopped=runner.stop.requested)
    return result if is_new else _keep_better(folder, result)


def replace_or_discard(home: SweepFolder) -> None:
    """Keep or drop the new figures of repeated experiments that a killed dpprof left behind."""
    for folder in [*left_over(home), *left_over(home.foreseen)]:
        again = _readable(beside(folder))
        if again is not None and again.figures is not None and _takes_over(again, _readable(folder)):
            replace(folder)
        else:
            remove(beside(folder).path)


def _keep_better(folder: RunFolder, again: Result) -> Result:
    earlier = _readable(folder)
    if _takes_over(again, earlier):
        replace(folder)
        return read_result(folder)
    if earlier is None:
        remove(beside(folder).path)
        return dataclasses.replace(again, name=folder.name, folder=folder)
    failure = again.failure or earlier.failure
    if failure is not None and again.status == FAILED:
        failure = dataclasses.replace(failure, message=f"done again, it failed: {failure.message}")
        folder.write_error(failure)
        if again.folder.log.exists():
            shutil.copyfile(again.folder.log, folder.log)
        mark_unlogged(folder, folder)
    remove(beside(folder).path)
    return dataclasses.replace(earlier, failure=failure)


def beside(folder: RunFolder) -> RunFolder:
    """Return the hidden folder in which a folder's experiment is repeated."""
    return RunFolder(_hidden(folder, _AGAIN))


def replace(folder: RunFolder) -> None:
    """Replace the folder with its repetition; its MLflow run is replaced at the next upload."""
    before = _hidden(folder, _BEFORE)
    remove(before)
    mark_unlogged(folder, beside(folder))
    folder.path.rename(before)
    beside(folder).path.rename(folder.path)
    remove(before)


def left_over(home: SweepFolder) -> Iterator[RunFolder]:
    """Finish interrupted replacements, then yield folders whose rerun a killed driver left behind."""
    for path in sorted(home.path.glob(f".*{_BEFORE}")):
        folder = _visible(path, _BEFORE)
        if not folder.path.exists():
            again = beside(folder).path
            (again if again.exists() else path).rename(folder.path)
        remove(path)
    for path in sorted(home.path.glob(f".*{_AGAIN}")):
        yield _visible(path, _AGAIN)


def mark_unlogged(folder: RunFolder, into: RunFolder) -> None:
    """Note in `into` that the folder's MLflow run is to be replaced."""
    try:
        link = Link.read(folder.mlflow)
    except DpprofError:
        with suppress(OSError):  # copied unread: the damage is reported when the folder is logged
            shutil.copyfile(folder.mlflow, into.mlflow)
        return
    if link is not None:
        dataclasses.replace(link, complete=False).write(into.mlflow)


def _hidden(folder: RunFolder, suffix: str) -> Path:
    return folder.path.with_name(f".{folder.name}{suffix}")


def _visible(path: Path, suffix: str) -> RunFolder:
    return RunFolder(path.with_name(path.name.removeprefix(".").removesuffix(suffix)))


def _takes_over(again: Result, earlier: Result | None) -> bool:
    """Tell whether a repeated result replaces the earlier one: not if figures would be lost."""
    if earlier is None or earlier.figures is None:
        return again.figures is not None or again.status != KILLED
    return again.figures is not None and (again.is_complete or _finished(again) >= _finished(earlier))


def _finished(result: Result) -> set[str]:
    passes = result.record.passes if result.record else {}
    return {name for name, outcome in passes.items() if outcome.status == PassStatus.FINISHED}


def _readable(folder: RunFolder) -> Result | None:
    try:
        return read_result(folder)
    except DpprofError:
        return None


def earlier_result(own: SweepFolder, name: str, config: ExperimentConfig) -> Result | None:
    """Return the result of the same experiment, name and package versions, if there is one.

    Looks in the folder of a campaign and beside it. Where code is not dpprof's own and may have changed, only
    the campaign's own folder counts.
    """
    campaigns = "*" if _is_versioned(config) else glob.escape(own.path.name)
    for path in sorted(own.path.parent.glob(f"{campaigns}/{name}/config.json"), reverse=True):
        folder = RunFolder(path.parent)
        with suppress(DpprofError):  # damaged, or another version's
            if folder.read_config() == config and _is_ours(result := read_result(folder)):
                return result
    return None


def _is_versioned(config: ExperimentConfig) -> bool:
    """True if package versions determine the code that it runs."""
    workload = WORKLOADS.get(listed(config.workload))
    if workload is None or (config.of_listed and Path(config.of_listed).exists()):
        return False
    return all(info.target.startswith(_OURS) for info in (workload, TRAINERS[config.trainer]))


def _is_ours(result: Result) -> bool:
    if not result.is_complete or result.record is None or not result.folder.ledger.exists():
        return False
    environment = result.record.environment
    if result.config.device == "cpu" and not environment.items() >= processor().items():
        return False
    versions = {name: _version(name) for name in _PACKAGES} | {"dpprof": __version__}
    return all(environment.get(f"{name}_version") == version for name, version in versions.items())


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
