"""The estimate of a training step: its ledger on fake tensors, without a device to run it on."""

import dataclasses
from collections.abc import Callable
from functools import partial

import torch

from dpprof.config.experiment import ExperimentConfig
from dpprof.errors import DpprofError, EstimateError, describe_error
from dpprof.figures.capacity import from_allocator
from dpprof.measure.observe import Subject, Training
from dpprof.measure.passes.estimate_ledger import CpuLedger, CudaLedger
from dpprof.measure.passes.ledger import Kept, keep_ledger, warmup_steps
from dpprof.measure.ranks import one_rank_of_many
from dpprof.measure.trainers.build import load_trainer
from dpprof.measure.trainers.fake_tensors import fake_tensors
from dpprof.record.ledger import Doubt, LedgerResult
from dpprof.record.record import RankResult


def run(subject: Subject, build: Callable[[str], Training]) -> None:
    """Keep the ledger of a step: its peak, its traffic, and what is in doubt about them.

    `build` makes the training with its tensors on a device. Where torch has no CUDA, fake CPU tensors
    stand in for the GPU's (`capacity.assumptions` says where that matters). The allocator's peak in the
    record is the ledger's plus what the allocator adds.

    Raises EstimateError if the step cannot run without data.
    """
    config, record = subject.config, subject.record
    tensor_device = config.device if torch.cuda.is_available() else "cpu"
    kept, doubts = _ledger_of_rank(config, 0, partial(build, tensor_device), tensor_device)
    record.ledger = kept.result()
    record.ledger.doubts = [*doubts, *_growing(record.ledger)]
    record.memory.saved = kept.saved
    record.memory.peak_allocated = record.ledger.peak + sum(from_allocator(config, record.ledger).values())
    subject.folder.write_ledger(record.ledger, kept.account.timeline())
    if config.world_size > 1:
        record.ranks = [RankResult(0, kept.account.peak, kept.account.peak_phase)]
    differs = config.parallel in load_trainer(config.trainer).rank_0_differs
    if config.world_size > 1 and differs and config.estimating.savings:  # a search asks for the peak alone
        other, _ = _ledger_of_rank(_without_savings(config), 1, partial(build, tensor_device), tensor_device)
        record.ranks.append(RankResult(1, other.account.peak, other.account.peak_phase))


def _without_savings(config: ExperimentConfig) -> ExperimentConfig:
    return dataclasses.replace(config, how=dataclasses.replace(config.estimating, savings=False))


def _ledger_of_rank(
    config: ExperimentConfig, rank: int, build: Callable[[], Training], tensor_device: str
) -> tuple[Kept, list[Doubt]]:
    """What one rank holds, and what is in doubt about it. Raises EstimateError."""
    as_on_cuda = config.precision == "bf16" and config.device == "cuda" and tensor_device == "cpu"
    try:
        with (
            one_rank_of_many(config, rank),
            fake_tensors(load_trainer(config.trainer), as_autocast_on_cuda=as_on_cuda),
        ):
            ledger = CpuLedger() if config.device == "cpu" else CudaLedger(tensor_device)
            kept = keep_ledger(
                build,
                ledger,
                1,
                warmup_steps=warmup_steps(config),
                with_savings=config.estimating.savings,
            )
    except DpprofError:
        raise
    except Exception as error:
        raise EstimateError(
            f"the step failed on fake tensors, which have no data: {describe_error(error)}. "
            "If `dpprof profile` can run it, it can be measured, not estimated"
        ) from error
    return kept, list(ledger.doubts(kept.account.peak))


def _growing(ledger: LedgerResult) -> list[Doubt]:
    """The doubt about a step that leaves more alive than it found: no later step has its peak."""
    if ledger.growth <= 0:
        return []
    text = (
        "the step leaves more alive than it found: if every step does, later ones need more than is estimated"
    )
    return [Doubt("growing_state", text, None)]
