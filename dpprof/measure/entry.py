"""The measuring process: runs the experiment of one run folder and writes the results there.

    python -m dpprof.measure [--counted-step | --check | --calibrate DEVICE [PRECISIONS]] RUN_FOLDER

Reads `config.json`, which needs only the settings that differ from their defaults, and runs the trainer and
the workload that it names: give it no folder that you would not run a script from. Deletes earlier results,
writes `record.json` after each pass, and `error.json` if the clean pass fails. The exit code is 0 if the
clean pass finished, else 1. Imports torch and every listed trainer, but nothing of the tracker.

With `--counted-step` it warms up and does the one step that the profiler around this process counts. It
writes nothing; the exit code is 1 if that fails.

An experiment with several ranks runs one such process per rank, started by dpprof or `torchrun`. Rank 0
writes to the folder itself, every other rank to a folder within it (`RunFolder.rank`). The exit code is then
1 if any pass failed, since the other ranks wait for this one.

With `--check` the folder names a workload to check (`record/check.py`) and receives the answer.

With `--calibrate` it receives the times of a device, `cpu` or `cuda`, after each of two rounds. PRECISIONS
are such as `fp32,tf32`; by default they are fp32, tf32 and bf16 on a GPU, and fp32 on a CPU. Several ranks
also time their collectives. It needs torch, Opacus, numpy and psutil alone.
"""

import importlib.util
import os
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from dpprof.config.experiment import ExperimentConfig
from dpprof.config.named_trainers import load_named
from dpprof.errors import DpprofError, describe_error, writable
from dpprof.measure.rank import Rank, rank_of
from dpprof.measure.stacks import stacks_at_end
from dpprof.measure.workloads.factory import find_module, load_factory
from dpprof.process import end_with_driver, peak_rss_bytes
from dpprof.record.check import MODULE, TRAINING, CheckAnswer, CheckFolder
from dpprof.record.folder import RunFolder
from dpprof.record.record import Failure, FailureKind, Memory
from dpprof.vocabulary.messages import SAID, is_oom

_COUNTED_STEP = "--counted-step"
_CHECK = "--check"
_CALIBRATE, _ALL = "--calibrate", "auto"
_LONGEST_TRACEBACK = 100_000
# Signals received to end the measurement.
_received: list[int] = []
# A workload may close or replace the output, or close its descriptors: these are copies.
_OUTPUT, _ERRORS = 1, 2
_copies: dict[int, int] = {}


def keep_descriptors() -> None:
    """Copy the output descriptors, before a workload is imported. Not if other code writes there too."""
    for descriptor in (_OUTPUT, _ERRORS):
        with suppress(OSError):  # closed from the start
            _copies[descriptor] = os.dup(descriptor)


def say(message: str) -> None:
    """Write a message for whoever follows the log."""
    _write(_OUTPUT, f"{SAID}{message}\n")


def show(text: str) -> None:
    """Write an error's text into the log."""
    _write(_ERRORS, f"{text}\n")


def _write(descriptor: int, text: str) -> None:
    with suppress(Exception):
        if descriptor not in _copies:
            print(text, end="", file=sys.stdout if descriptor == _OUTPUT else sys.stderr, flush=True)
            return
        with open(_copies[descriptor], "wb", closefd=False) as output:
            output.write(text.encode(errors="backslashreplace"))


def defer_opacus() -> None:
    """Make `import opacus` cheap, unless it is imported: its `__init__` runs when one of its names is used.

    That `__init__` imports the privacy accountants and scipy.stats: half of Opacus's import time and 64 MiB
    of resident memory that no training step needs. Submodules import as usual. The standard library's
    `LazyLoader` cannot do this for a package. Raises ImportError without Opacus.
    """
    if "opacus" in sys.modules:
        return
    spec = importlib.util.find_spec("opacus")
    if spec is None or spec.loader is None:
        raise ImportError("No module named 'opacus'")
    loader = spec.loader
    package = importlib.util.module_from_spec(spec)

    def load(name: str) -> Any:
        del package.__getattr__
        loader.exec_module(package)
        return getattr(package, name)

    package.__getattr__ = load  # type: ignore[method-assign]
    sys.modules["opacus"] = package


def interrupt(number: int, frame: FrameType | None) -> None:
    """Handle a signal that ends the measurement: raise KeyboardInterrupt."""
    _received.append(number)
    raise KeyboardInterrupt


def measure(folder: RunFolder) -> int:
    """Run the folder's experiment and return the exit code. Never raises for a failed experiment."""
    _received.clear()
    own = folder
    try:
        this = _rank(folder)
        own = folder.rank(this.rank)
        own.path.mkdir(parents=True, exist_ok=True)
        own.clear_answers()
        with stacks_at_end(own.stacks) if this.world_size > 1 else nullcontext():
            return _measure(folder, own, this)
    except BaseException as error:
        return _fail(own, error)


def _config_of(folder: RunFolder) -> ExperimentConfig:
    """Read the configuration and import its trainer, if that is named `module:CLASS`: here it is to run."""
    load_named(folder.read_config().trainer)
    return folder.read_config()  # with the trainer's own options


def _rank(folder: RunFolder) -> Rank:
    try:
        return rank_of(_config_of(folder))
    except DpprofError:
        folder.clear_answers()
        raise


def _measure(folder: RunFolder, own: RunFolder, this: Rank) -> int:
    tell = say if this.rank == 0 else show
    config = folder.read_config()  # `_config_of` has imported its trainer
    # Imported late, so that a broken torch or Opacus is reported in the folder too.
    defer_opacus()

    import torch

    from dpprof.measure.experiment import PassFailed, run_experiment
    from dpprof.measure.guarantee import leave_guarantee
    from dpprof.measure.trainers.build import import_trainers

    config = config.resolve(cuda_available=torch.cuda.is_available())
    if this.rank == 0:
        folder.write_config(config)
    if not config.is_estimate:  # an estimate reports no resident memory
        import_trainers(config.trainer, tell)
    try:
        record = run_experiment(config, own, tell)
    except PassFailed as failed:
        cause = failed.__cause__ or failed
        kept = own.read_record()
        if kept is None or not kept.headline_finished or _is_interrupt(cause):
            raise cause from cause.__cause__  # the original chain, without PassFailed
        show(_traceback(cause))
        if this.rank == 0:
            leave_guarantee(config, kept, own)
        tell(f"the {failed} pass failed; the figures of the passes before it stand")
        return 0 if this.world_size == 1 else 1
    if this.rank == 0:
        leave_guarantee(config, record, own)
    tell(f"finished: {record.num_parameters:,} parameters")
    return 0


def count(folder: RunFolder) -> int:
    """Do the step that the profiler around this process counts. Returns the exit code."""

    def counted() -> None:
        defer_opacus()

        from dpprof.measure.experiment import run_counted_step

        run_counted_step(_config_of(folder), say)

    return _done(counted, tells=True)


def check_workload(folder: CheckFolder) -> int:
    """Check a workload and return the exit code: 0 if there is an answer."""

    def checked() -> None:
        for experiment in folder.read_asked()[1]:
            load_named(experiment.trainer)
        folder.answer(_checked(*folder.read_asked()))

    return _done(checked)


def calibrate(device: str, precisions: str, folder: Path) -> int:
    """Measure the times of a device, in precisions as `CalibrateConfig` has them; return the exit code."""

    def calibrated() -> None:
        from dpprof.config.entry_points import CalibrateConfig

        chosen = CalibrateConfig(precisions=precisions).precisions_on(device)

        from dpprof.measure.calibration import write_times

        write_times(device, folder, say, chosen)

    return _done(calibrated)


def _done(work: Callable[[], None], *, tells: bool = False) -> int:
    """Do some work and return the exit code. An error goes into the log, and if it `tells` is said too."""
    try:
        work()
    except BaseException as error:
        show(_traceback(error))
        if tells:
            say(describe_error(error))
        return 1
    return 0


def _checked(depth: str, experiments: list[ExperimentConfig]) -> CheckAnswer:
    workload = experiments[0].workload
    try:
        find_module(workload)
        if depth == MODULE:
            return CheckAnswer()
        defer_opacus()
        load_factory(workload)

        from dpprof.measure.workload_check import check_contract, check_training

        if depth == TRAINING:
            return check_training(experiments, say)
        check_contract(experiments[0])
        return CheckAnswer()
    except DpprofError as error:
        return CheckAnswer(refused=str(error))


def _fail(folder: RunFolder, error: BaseException) -> int:
    if _is_interrupt(error):
        kind = FailureKind.INTERRUPTED
    else:
        kind = FailureKind.OOM if is_oom(error) else FailureKind.ERROR
    text = _traceback(error)
    try:
        folder.write_error(Failure(kind, describe_error(error), text, _last_memory()))
    except OSError as unwritable:
        show(f"cannot write the answer: {unwritable}")
    show(text)
    return 1


def _is_interrupt(error: BaseException) -> bool:
    """Tell a signal from a KeyboardInterrupt that the workload raised itself."""
    return isinstance(error, KeyboardInterrupt) and bool(_received)


def _traceback(error: BaseException) -> str:
    text = writable("".join(traceback.format_exception(error)))
    return text if len(text) <= _LONGEST_TRACEBACK else f"...{text[-_LONGEST_TRACEBACK:]}"


def _last_memory() -> Memory:
    memory = Memory(peak_rss=peak_rss_bytes())
    torch = sys.modules.get("torch")
    with suppress(Exception):  # a broken device has no figures
        if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
            memory.peak_allocated = torch.cuda.max_memory_allocated()
            memory.peak_reserved = torch.cuda.max_memory_reserved()
    return memory


def prepare() -> None:
    """Set up a measuring process: its end with the driver, its output and its signal handlers."""
    end_with_driver()
    keep_descriptors()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupt)


def main() -> int:
    """Run `python -m dpprof.measure` and return the exit code."""
    if sys.argv[1:2] == [_CALIBRATE] and len(sys.argv) in (4, 5):
        device, *precisions, folder = sys.argv[2:]
        prepare()
        return calibrate(device, precisions[0] if precisions else _ALL, Path(folder))
    folders = [argument for argument in sys.argv[1:] if argument not in (_COUNTED_STEP, _CHECK)]
    if len(folders) != 1 or _CALIBRATE in folders:
        how = f"[{_COUNTED_STEP} | {_CHECK} | {_CALIBRATE} DEVICE [PRECISIONS]]"
        print(f"usage: python -m dpprof.measure {how} RUN_FOLDER", file=sys.stderr)
        return 2
    prepare()
    path = Path(folders[0]).absolute()  # a workload may change the working directory
    if _CHECK in sys.argv:
        return check_workload(CheckFolder(path))
    if _COUNTED_STEP in sys.argv:
        sys.exit(count(RunFolder(path)))  # a normal exit lets the profiler write
    return measure(RunFolder(path))
