"""The measuring process: runs the experiment of one run folder and leaves the answer there.

    python -m dpprof.measure [--counted-step | --check] RUN_FOLDER

Reads `config.json`, which may name only the settings that differ from their defaults; writes `record.json`
after each pass, and `error.json` if the clean pass failed. What an earlier measurement left is deleted.
Imports torch and every listed trainer, and nothing of the tracker. Exit code 0 if the clean pass finished,
else 1.

With `--counted-step` it only warms up and does the one step that the profiler around this process counts. It
writes nothing, and exits with 1 if that fails.

With `--check` the folder holds what is to be checked of a workload (`record/check.py`), and gets the answer.
"""

import signal
import sys
import traceback

from dpprof.config.experiment import ExperimentConfig
from dpprof.errors import DpprofError
from dpprof.measure import lazy_opacus
from dpprof.measure.workloads.factory import find_module, load_factory
from dpprof.process import end_with_driver, peak_rss_bytes
from dpprof.record.check import MODULE, TRAINING, CheckAnswer, CheckFolder
from dpprof.record.folder import RunFolder
from dpprof.record.record import Failure, Memory
from dpprof.vocabulary.log_lines import SAID
from dpprof.vocabulary.out_of_memory import is_oom

_COUNTED_STEP = "--counted-step"
_CHECK = "--check"


def measure(folder: RunFolder) -> int:
    """Run the folder's experiment. Returns the exit code; never raises for a failed experiment."""
    try:
        return _measure(folder)
    except BaseException as error:
        return _fail(folder, error)


def _measure(folder: RunFolder) -> int:
    folder.clear_answers()
    config = folder.read_config()
    # Late, so that a torch or an Opacus that cannot be imported leaves an answer in the folder too.
    lazy_opacus.install()

    import torch

    from dpprof.measure.experiment import PassFailed, run_experiment
    from dpprof.measure.trainers.build import import_trainers

    config = config.resolve(cuda_available=torch.cuda.is_available())
    folder.write_config(config)
    import_trainers(config.trainer, say)
    try:
        record = run_experiment(config, folder, say)
    except PassFailed as failed:
        cause = failed.__cause__ or failed
        kept = folder.read_record()
        if kept is None or not kept.headline_finished or isinstance(cause, KeyboardInterrupt):
            raise cause from cause.__cause__  # without the PassFailed, and with what is behind it
        traceback.print_exception(cause)
        say(f"the {failed} pass failed; the figures of the passes before it stand")
        return 0
    say(f"finished: {record.num_parameters:,} parameters")
    return 0


def count(folder: RunFolder) -> int:
    """Do the one step that the profiler around this process counts. Returns the exit code."""
    try:
        lazy_opacus.install()

        from dpprof.measure.experiment import run_counted_step

        run_counted_step(folder.read_config(), folder, say)
    except BaseException as error:
        traceback.print_exception(error)
        say(f"{type(error).__name__}: {error}")
        return 1
    return 0


def check(folder: CheckFolder) -> int:
    """Check a workload. Returns the exit code: 0 if there is an answer."""
    try:
        folder.answer(_checked(*folder.read_asked()))
    except BaseException as error:
        traceback.print_exception(error)
        return 1
    return 0


def _checked(depth: str, experiments: list[ExperimentConfig]) -> CheckAnswer:
    workload = experiments[0].workload
    try:
        find_module(workload)
        if depth == MODULE:
            return CheckAnswer()
        lazy_opacus.install()
        load_factory(workload)

        from dpprof.measure.check import check_contract, check_training

        if depth == TRAINING:
            return check_training(experiments, say)
        check_contract(experiments[0])
        return CheckAnswer()
    except DpprofError as error:
        return CheckAnswer(refused=str(error))


def say(message: str) -> None:
    """Tell whoever follows the log."""
    print(f"{SAID}{message}", flush=True)


def _fail(folder: RunFolder, error: BaseException) -> int:
    kind = "interrupted" if isinstance(error, KeyboardInterrupt) else "oom" if is_oom(error) else "error"
    message = f"{type(error).__name__}: {error}".strip()
    text = "".join(traceback.format_exception(error))
    print(text, file=sys.stderr, flush=True)
    try:
        folder.write_error(Failure(kind, message, text, _last_memory()))
    except OSError as unwritable:
        print(f"cannot write the answer: {unwritable}", file=sys.stderr, flush=True)
    return 1


def _last_memory() -> Memory:
    memory = Memory(peak_rss=peak_rss_bytes())
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        memory.peak_allocated = torch.cuda.max_memory_allocated()
        memory.peak_reserved = torch.cuda.max_memory_reserved()
    return memory


def main() -> int:
    """Entry of `python -m dpprof.measure`."""
    folders = [argument for argument in sys.argv[1:] if argument not in (_COUNTED_STEP, _CHECK)]
    if len(folders) != 1:
        print(f"usage: python -m dpprof.measure [{_COUNTED_STEP} | {_CHECK}] RUN_FOLDER", file=sys.stderr)
        return 2
    end_with_driver()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if _CHECK in sys.argv:
        return check(CheckFolder(folders[0]))
    if _COUNTED_STEP in sys.argv:
        sys.exit(count(RunFolder(folders[0])))  # the ordinary exit, at which a profiler collects what it has
    return measure(RunFolder(folders[0]))
