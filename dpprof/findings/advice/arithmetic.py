"""Savings of changes that are not built in, computed from the storages of an estimated step."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dpprof.config.experiment import ExperimentConfig
from dpprof.record.figures.capacity import saved_by_expandable
from dpprof.record.ledger import HeldTensor, LedgerResult, StepTimeline
from dpprof.vocabulary.clipping import NOISE_BUFFER
from dpprof.vocabulary.trainer_info import OPACUS
from dpprof.vocabulary.trainers import trainer_info
from dpprof.vocabulary.workloads import BUILT_IN_WORKLOAD

# Categories of tensors between the last layer's product and the loss.
_OF_OUTPUT = ("outputs", "activations", "temporary")
_FP32_BYTES = 4


@dataclass(frozen=True)
class ByArithmetic:
    """A change that was computed, not estimated: bytes off the need, and FLOPs added at most."""

    name: str
    saved: int
    flops: int
    how: str


def by_arithmetic(
    config: ExperimentConfig, ledger: LedgerResult, timeline: StepTimeline
) -> list[ByArithmetic]:
    """Return the changes that save memory."""
    if not timeline.storages:
        return []
    peak = peak_with(timeline, lambda held: 1.0)
    found = []
    info = trainer_info(config.trainer)
    if info.library == OPACUS:
        saved = peak - peak_with(timeline, _share_in_place(config))
        how = (
            "Opacus draws each parameter's noise as a whole tensor, and adds it into a new gradient beside "
            "the sum; drawn piece by piece and added to the sum itself, it needs a buffer alone, as with bk "
            "and mixed"
        )
        found.append(ByArithmetic("noise in place", saved, 0, how))
    found += _chunked_vocabulary(config, ledger, timeline, peak)
    how = (
        "with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, as the script of a plan sets it, torch's "
        "allocator leaves less of the device's memory unused; the peak of the tensors stays"
    )
    found.append(ByArithmetic("expandable segments", saved_by_expandable(ledger), 0, how))
    return [one for one in found if one.saved > 0]


def peak_with(timeline: StepTimeline, share: Callable[[HeldTensor], float]) -> int:
    """Return the peak of a step in bytes if each storage had only a share of its bytes."""
    shares = np.array([share(held) if held.num_bytes else 1.0 for held in timeline.storages])
    began = sum(
        held.num_bytes * part
        for held, part in zip(timeline.storages[: timeline.num_present], shares, strict=False)
    )
    moved = np.array([moved_to is not None for moved_to in timeline.moved_to], dtype=bool)
    changes = np.array(timeline.num_bytes, dtype=np.float64) * shares[timeline.storage_index]
    alive = began + np.cumsum(np.where(moved, 0.0, changes))
    return round(max(float(alive.max(initial=0.0)), float(began)))


def _share_in_place(config: ExperimentConfig) -> Callable[[HeldTensor], float]:
    size = NOISE_BUFFER.get(config.device, NOISE_BUFFER["cpu"]) * _FP32_BYTES

    def share(held: HeldTensor) -> float:
        if held.phase == "noise" and held.category == "gradients":
            return 0.0
        return min(1.0, size / held.num_bytes) if held.category == "noise" else 1.0

    return share


def _chunked_vocabulary(
    config: ExperimentConfig, ledger: LedgerResult, timeline: StepTimeline, peak: int
) -> list[ByArithmetic]:
    """Compute the savings of running the last layer and its loss one sample at a time."""
    samples, vocab = config.estimated_batch, config.vocab_size
    if config.workload != BUILT_IN_WORKLOAD or samples < 2:
        return []
    numbers = samples * config.seq_len * vocab

    def share(held: HeldTensor) -> float:
        is_of_output = bool(held.shape) and held.shape[-1] == vocab and held.category in _OF_OUTPUT
        return 1 / samples if is_of_output and int(np.prod(held.shape)) == numbers else 1.0

    num_backwards = sum(phase.startswith("backward") for phase in ledger.phase_peak)
    again = 2 * numbers * config.hidden_dim * num_backwards * config.accumulation_steps
    how = (
        f"of the {samples:,} x {config.seq_len:,} x {vocab:,} numbers between the last layer and the loss, "
        "only one sample's would be alive; each backward computes them again"
    )
    saved = peak - peak_with(timeline, share)
    return [ByArithmetic("vocabulary projection in chunks", saved, again, how)]
