"""Runs the passes of one experiment. The only place where trainers and passes meet."""

import gc
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial

import torch

from dpprof.config.devices import DEVICES, name_of
from dpprof.config.estimating import ESTIMATE
from dpprof.config.experiment import ExperimentConfig
from dpprof.config.flat import to_flat
from dpprof.config.measuring import ALONE, CLEAN
from dpprof.errors import DpprofError, EstimateError, describe_error
from dpprof.measure import gradient_check
from dpprof.measure.environment import describe_environment
from dpprof.measure.observe import Observer
from dpprof.measure.passes import clean, machine, memory, trace
from dpprof.measure.passes.estimate_ledger import CpuLedger, CudaLedger, EstimateLedger, note_estimate
from dpprof.measure.passes.ledger import Kept, Ledger, keep_ledger, warmup_steps
from dpprof.measure.passes.predictor import predictor_of
from dpprof.measure.passes.subject import Subject
from dpprof.measure.rank import rank_of
from dpprof.measure.ranks import Ranks, one_rank_of_many
from dpprof.measure.trainers.build import load_trainer
from dpprof.measure.trainers.fake_tensors import fake_tensors
from dpprof.measure.trainers.training import Training, end_if_forked
from dpprof.measure.verifying import verification
from dpprof.record.figures.capacity import device_of
from dpprof.record.folder import RunFolder
from dpprof.record.record import PassOutcome, PassStatus, RankResult, Record
from dpprof.vocabulary.messages import TIMES_TAKEN
from dpprof.vocabulary.phases import label_of

_TIMED = (CLEAN, ALONE, "pace")
# Passes that take times, if only of single operators.
_TAKING_TIMES = (*_TIMED, "trace", "ceilings")
_LEDGER_STEPS = 2


class PassFailed(Exception):
    """A pass, which the message names, failed. The cause is the original error."""


def run_experiment(config: ExperimentConfig, folder: RunFolder, say: Callable[[str], None]) -> Record:
    """Run the configured passes in order, saving the record to this rank's folder after each.

    Raises PassFailed when a pass fails, and skips the rest. The record keeps the earlier passes' figures.
    """
    ranks = Ranks(config, rank_of(config))
    # An estimate records the machine that made it, not the one that it is for.
    device = "cpu" if config.is_estimate else config.device
    record = Record(to_flat(config), describe_environment(device, ranks.here))
    process = os.getpid()
    last_timed = [name for name in config.pass_names if name in _TAKING_TIMES][-1:]
    for name in config.pass_names:
        times_taken = _once(partial(say, TIMES_TAKEN)) if name in last_timed else _nothing
        subject = Subject(config, folder, record, times_taken)
        if record.passes:
            gc.collect()  # what the previous pass left
        if name not in _TIMED:
            gc.freeze()  # later collections skip all that is imported; timed steps are as in any training
        if config.device == "cuda":
            torch.cuda.empty_cache()
        outcome = record.passes[name] = PassOutcome(PassStatus.RUNNING)
        folder.write_record(record)
        say(f"{name} pass")
        started = time.perf_counter()
        try:
            with _group(name, config, ranks):
                PASSES[name](subject)
            times_taken()
            ranks.record_results(name, record)
        except BaseException as error:
            outcome.status, outcome.reason = PassStatus.FAILED, describe_error(error)
            raise PassFailed(name) from error
        else:
            outcome.status = PassStatus.FINISHED
        finally:
            end_if_forked(process)
            outcome.seconds = time.perf_counter() - started
            record.ended_at = time.time()
            folder.write_record(record)
    ranks.leave()
    return record


def _once(call: Callable[[], None]) -> Callable[[], None]:
    """Return a function that calls another at its first call alone."""
    calls = iter([call])
    return lambda: next(calls, _nothing)()


def _nothing() -> None:
    pass


def _group(name: str, config: ExperimentConfig, ranks: Ranks) -> AbstractContextManager[None]:
    if name == ALONE:
        return ranks.in_turn()
    if name in ("memory", "ledger") and config.device == "cpu":
        # gloo frees memory in threads of its own, which the profiler does not see, and copies what it
        # scatters, which NCCL does not.
        return ranks.alone()
    return ranks.together()


def run_counted_step(config: ExperimentConfig, say: Callable[[str], None]) -> None:
    """Warm up, then do the one step that Nsight Compute counts (`drive/counters.py` starts it)."""
    training = Training(config)
    training.run(config.measuring.warmup_steps, Observer())
    training.run(1, _CountedStep() if config.device == "cuda" else Observer())
    say("the counted step is done")


class _CountedStep(Observer):
    """Profiles a step (cudaProfilerStart and Stop), with NVTX ranges for phases that belong to no thread."""

    @contextmanager
    def step(self) -> Iterator[None]:
        torch.cuda.synchronize()
        torch.cuda.profiler.start()
        yield
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        opened = torch.cuda.nvtx.range_start(label_of(name))
        yield
        torch.cuda.nvtx.range_end(opened)


def _ledger(subject: Subject) -> None:
    """Do two steps under the ledger, after warm-up, and record the one with the higher peak.

    On a listed GPU, with what its kernels and the allocator take beside the tensors.
    """
    config = subject.config
    name = name_of(subject.record.environment.get("gpu", ""))
    is_listed = name in DEVICES and config.device == "cuda"
    ledger = CudaLedger("cuda", DEVICES[name], predictor_of(name)) if is_listed else Ledger(config.device)
    kept = keep_ledger(subject.build, ledger, _LEDGER_STEPS, warmup_steps=warmup_steps(config))
    subject.record.ledger = kept.result
    subject.folder.write_ledger(kept.result, kept.account.timeline())


def _estimate(subject: Subject) -> None:
    """Estimate the memory and traffic of a step, with the doubts about them.

    Where torch has no CUDA, fake CPU tensors stand in for the GPU's (`capacity.assumptions` says where that
    matters). The recorded allocator peak is the ledger's plus what the allocator adds. Raises EstimateError
    if the step cannot run without data.
    """
    config, record = subject.config, subject.record
    savings = config.estimating.savings
    kept = _ledger_of_rank(subject, 0, with_savings=savings)
    note_estimate(kept, record, subject.folder)
    record.memory.saved = kept.saved
    if config.world_size > 1:
        record.ranks = [RankResult(0, kept.account.peak, kept.account.peak_phase)]
    differs = config.parallel in load_trainer(config.trainer).rank_0_differs
    if config.world_size > 1 and differs and savings:  # a search asks for the peak alone
        other = _ledger_of_rank(subject, 1, with_savings=False)
        record.ranks.append(RankResult(1, other.account.peak, other.account.peak_phase))


def _ledger_of_rank(subject: Subject, rank: int, *, with_savings: bool) -> Kept:
    config = subject.config
    tensor_device = config.device if torch.cuda.is_available() else "cpu"
    as_on_cuda = config.device == "cuda" and tensor_device == "cpu"
    trainer, predictor = load_trainer(config.trainer), predictor_of(config.estimating.target)
    try:
        autocast = as_on_cuda and config.precision == "bf16"
        on_fakes = fake_tensors(trainer, as_on_cuda=as_on_cuda, as_autocast_on_cuda=autocast)
        with one_rank_of_many(config, rank), on_fakes:
            device = device_of(config)
            ledger: EstimateLedger = (
                CpuLedger(predictor)
                if config.device == "cpu"
                else CudaLedger(tensor_device, device, predictor)
            )
            build = partial(subject.build, tensor_device)
            warm = warmup_steps(config)
            kept = keep_ledger(build, ledger, 1, warmup_steps=warm, with_savings=with_savings)
    except DpprofError:
        raise
    except Exception as error:
        raise EstimateError(
            f"the step failed on fake tensors, which have no data: {describe_error(error)}. "
            "If `dpprof profile` can run it, it can be measured, not estimated"
        ) from error
    kept.result.doubts = list(ledger.doubts(kept.account.peak))
    if rank == 0:
        kept.result.segments = ledger.segments(kept.account)
    return kept


PASSES: dict[str, Callable[[Subject], None]] = {
    CLEAN: clean.run,
    ALONE: clean.run_alone,
    "pace": machine.run_pace,
    "memory": memory.run,
    "trace": trace.run,
    "ceilings": machine.run_ceilings,
    "ledger": _ledger,
    "gradient_check": gradient_check.run,
    "verify": verification.run,
    ESTIMATE: _estimate,
}
