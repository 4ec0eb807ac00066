"""The measuring process: runs the experiment of one run folder and leaves the answer there.

    python -m dpprof.measure [--counted-step | --check] RUN_FOLDER

Reads `config.json`, which may name only the settings that differ from their defaults; writes `record.json`
after each pass, and `error.json` if the clean pass failed. What an earlier measurement left is deleted.
Imports torch and every listed trainer, and nothing of the tracker. Exit code 0 if the clean pass finished,
else 1.

With `--counted-step` it only warms up and does the one step that the profiler around this process counts. It
writes nothing, and exits with 1 if that fails.

An experiment of several ranks runs in as many of these processes, which dpprof or `torchrun` starts. Rank 0
answers in the folder itself, each other rank in a folder within it (`RunFolder.rank`). The exit code is then
1 if any pass failed: the other ranks wait for this one.

With `--check` the folder holds what is to be checked of a workload (`record/check.py`), and gets the answer.
"""

import signal
import sys
import traceback
from contextlib import nullcontext, suppress
from pathlib import Path
from types import FrameType

from dpprof.config.experiment import ExperimentConfig
from dpprof.errors import DpprofError, describe_error, writable
from dpprof.measure import lazy_opacus
from dpprof.measure.place import Place, place_in
from dpprof.measure.stacks import stacks_at_end
from dpprof.measure.voice import keep_descriptors, say, show
from dpprof.measure.workloads.factory import find_module, load_factory
from dpprof.process import end_with_driver, peak_rss_bytes
from dpprof.record.check import MODULE, TRAINING, CheckAnswer, CheckFolder
from dpprof.record.folder import RunFolder
from dpprof.record.record import Failure, Memory
from dpprof.vocabulary.out_of_memory import is_oom

_COUNTED_STEP = "--counted-step"
_CHECK = "--check"
_LONGEST_TRACEBACK = 100_000
# The signals that were to end what is being measured.
_received: list[int] = []


def interrupt(number: int, frame: FrameType | None) -> None:
    """The handler of a signal that ends what is being measured."""
    _received.append(number)
    raise KeyboardInterrupt


def measure(folder: RunFolder) -> int:
    """Run the folder's experiment. Returns the exit code; never raises for a failed experiment."""
    _received.clear()
    own = folder
    try:
        place = _place(folder)
        own = folder.rank(place.rank)
        own.path.mkdir(parents=True, exist_ok=True)
        own.clear_answers()
        with stacks_at_end(own.stacks) if place.world_size > 1 else nullcontext():
            return _measure(folder, own, place)
    except BaseException as error:
        return _fail(own, error)


def _place(folder: RunFolder) -> Place:
    try:
        return place_in(folder.read_config())
    except DpprofError:
        folder.clear_answers()
        raise


def _measure(folder: RunFolder, own: RunFolder, place: Place) -> int:
    tell = say if place.rank == 0 else show
    config = folder.read_config()
    # Late, so that a torch or an Opacus that cannot be imported leaves an answer in the folder too.
    lazy_opacus.install()

    import torch

    from dpprof.measure.experiment import PassFailed, run_experiment
    from dpprof.measure.guarantee import leave_guarantee
    from dpprof.measure.ranks import Ranks
    from dpprof.measure.trainers.build import import_trainers

    config = config.resolve(cuda_available=torch.cuda.is_available())
    if place.rank == 0:
        folder.write_config(config)
    if not config.is_estimate:  # whose resident memory is no figure
        import_trainers(config.trainer, tell)
    try:
        record = run_experiment(config, own, tell, Ranks(config, place))
    except PassFailed as failed:
        cause = failed.__cause__ or failed
        kept = own.read_record()
        if kept is None or not kept.headline_finished or _is_interrupt(cause):
            raise cause from cause.__cause__  # without the PassFailed, and with what is behind it
        show(_traceback(cause))
        if place.rank == 0:
            leave_guarantee(config, kept, own)
        tell(f"the {failed} pass failed; the figures of the passes before it stand")
        return 0 if place.world_size == 1 else 1
    if place.rank == 0:
        leave_guarantee(config, record, own)
    tell(f"finished: {record.num_parameters:,} parameters")
    return 0


def count(folder: RunFolder) -> int:
    """Do the one step that the profiler around this process counts. Returns the exit code."""
    try:
        lazy_opacus.install()

        from dpprof.measure.experiment import run_counted_step

        run_counted_step(folder.read_config(), folder, say)
    except BaseException as error:
        show(_traceback(error))
        say(describe_error(error))
        return 1
    return 0


def check(folder: CheckFolder) -> int:
    """Check a workload. Returns the exit code: 0 if there is an answer."""
    try:
        folder.answer(_checked(*folder.read_asked()))
    except BaseException as error:
        show(_traceback(error))
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


def _fail(folder: RunFolder, error: BaseException) -> int:
    kind = "interrupted" if _is_interrupt(error) else "oom" if is_oom(error) else "error"
    text = _traceback(error)
    try:
        folder.write_error(Failure(kind, describe_error(error), text, _last_memory()))
    except OSError as unwritable:
        show(f"cannot write the answer: {unwritable}")
    show(text)
    return 1


def _is_interrupt(error: BaseException) -> bool:
    """Whether a signal raised the error; a workload may raise KeyboardInterrupt too."""
    return isinstance(error, KeyboardInterrupt) and bool(_received)


def _traceback(error: BaseException) -> str:
    text = writable("".join(traceback.format_exception(error)))
    return text if len(text) <= _LONGEST_TRACEBACK else f"...{text[-_LONGEST_TRACEBACK:]}"


def _last_memory() -> Memory:
    memory = Memory(peak_rss=peak_rss_bytes())
    torch = sys.modules.get("torch")
    with suppress(Exception):  # a device that is out of order has no figures
        if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
            memory.peak_allocated = torch.cuda.max_memory_allocated()
            memory.peak_reserved = torch.cuda.max_memory_reserved()
    return memory


def prepare() -> None:
    """What a measuring process begins with."""
    end_with_driver()
    keep_descriptors()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupt)


def main() -> int:
    """Entry of `python -m dpprof.measure`."""
    folders = [argument for argument in sys.argv[1:] if argument not in (_COUNTED_STEP, _CHECK)]
    if len(folders) != 1:
        print(f"usage: python -m dpprof.measure [{_COUNTED_STEP} | {_CHECK}] RUN_FOLDER", file=sys.stderr)
        return 2
    prepare()
    path = Path(folders[0]).absolute()  # a workload may change the working directory
    if _CHECK in sys.argv:
        return check(CheckFolder(path))
    if _COUNTED_STEP in sys.argv:
        sys.exit(count(RunFolder(path)))  # the ordinary exit, at which a profiler collects what it has
    return measure(RunFolder(path))
