"""What an estimated step needs of a device beyond its tensors, whether it fits, and how fast it can be.

Every figure beyond the tensors has a name, so that a reader can see what the total is made of. What the
allocator loses to fragmentation is in none of them.
"""

from collections.abc import Mapping
from typing import Any

from dpprof.config.devices import CONTEXT_MIB, DEVICES, WORKSPACE_MIB, Device
from dpprof.config.experiment import ExperimentConfig
from dpprof.record.ledger import LedgerResult, Moved
from dpprof.vocabulary.formats import size
from dpprof.vocabulary.trainers import trainer_info
from dpprof.vocabulary.units import GIB, MIB, mib
from dpprof.vocabulary.workloads import BUILT_IN_WORKLOAD

_CPU_ATTENTION = "aten::_scaled_dot_product_flash_attention_for_cpu"
_EMBEDDING = "aten::embedding_dense_backward"
_UNIQUE = "aten::unique_dim"


def device_of(config: ExperimentConfig) -> Device | None:
    """The device that an estimate is held against, where it is given by name."""
    return DEVICES.get(config.estimating.target)


def capacity_bytes(config: ExperimentConfig) -> int | None:
    """The memory of the device that an estimate is held against, if one was given."""
    device = device_of(config)
    gib = config.estimating.device_memory_gib or (device.memory_gib if device else 0)
    return round(gib * GIB) or None


def from_allocator(config: ExperimentConfig, ledger: LedgerResult) -> dict[str, int]:
    """Bytes that torch's CUDA allocator hands out beyond the tensors, by name; nothing on the CPU."""
    if config.device != "cuda":
        return {}
    device = device_of(config)
    workspace = device.workspace_mib if device else WORKSPACE_MIB
    found = {"block_rounding": ledger.block_rounding, "cublas_workspace": round(workspace * MIB)}
    built_in = config.workload == BUILT_IN_WORKLOAD
    if config.precision == "bf16" and built_in and _CPU_ATTENTION in ledger.operators:
        # Flash attention's backward sums the gradient of the queries in fp32, rows padded to 128.
        rows = -(-config.seq_len // 128) * 128
        found["attention_workspace"] = 4 * config.estimated_batch * rows * config.hidden_dim
    return found


def beyond_allocator(config: ExperimentConfig) -> dict[str, int]:
    """Bytes that a process takes on a device besides torch's allocator, by name."""
    return {"cuda_context": round(CONTEXT_MIB * MIB)} if config.device == "cuda" else {}


def needed_bytes(config: ExperimentConfig, ledger: LedgerResult) -> int:
    """Everything together: the peak of the tensors, what the allocator adds, and what lies beside it."""
    added = from_allocator(config, ledger) | beyond_allocator(config)
    return ledger.peak + sum(added.values())


def doubt_bytes(ledger: LedgerResult) -> int | None:
    """By how much everything that an estimate could not follow may raise what is needed; None if nothing
    bounds it. Doubts are added up, though hardly all of them meet at the peak.
    """
    sizes = [doubt.num_bytes for doubt in ledger.doubts]
    return None if None in sizes else sum(size for size in sizes if size is not None)


def fits(config: ExperimentConfig, ledger: LedgerResult) -> bool | None:
    """Whether the step fits the device, doubts included; None if the doubts decide, or no memory is given."""
    needed, doubt, limit = needed_bytes(config, ledger), doubt_bytes(ledger), capacity_bytes(config)
    if limit is None:
        return None
    if needed > limit:
        return False
    return True if doubt is not None and needed + doubt <= limit else None


def floor_s(config: ExperimentConfig, ledger: LedgerResult) -> dict[str, float]:
    """Seconds that each phase takes at least on the named device; empty without one.

    The longer of bytes over bandwidth and FLOPs over the rate of matrix products. A lower bound for eager
    execution whose operators exchange their tensors through the device's memory, never a prediction: it
    knows no launch, no wait and no inefficiency. Tensors small enough to stay in a cache can undercut it.
    """
    device = device_of(config)
    return {} if device is None else floor_on(device, config.precision, ledger)


def floor_on(device: Device, precision: str, ledger: LedgerResult) -> dict[str, float]:
    """As `floor_s`, of any step on a device."""
    moved, rate = ledger.moved(by=lambda row: row.phase), device.tflops(precision)

    def seconds(moved: Moved) -> float:
        by_arithmetic = moved.flops / (rate * 1e12) if rate else 0.0
        return max(moved.num_bytes / (device.bandwidth_gb_per_s * 1e9), by_arithmetic)

    return {phase: seconds(moved.get(phase, Moved())) for phase in ledger.phase_peak}


def communication_s(config: ExperimentConfig, ledger: LedgerResult) -> float | None:
    """Seconds that a rank takes at least to send what it has to; None for one rank alone, and without a link
    whose rate is known.
    """
    by_phase = _communication_by_phase(config, ledger)
    return sum(by_phase.values()) if by_phase else None


def link_of(config: ExperimentConfig) -> float:
    """GB/s at which a device sends, as given or of an estimate's target; 0 if it is not known."""
    device = device_of(config)
    return config.estimating.link_gb_per_s or (device.link_gb_per_s if device else 0.0)


def _communication_by_phase(config: ExperimentConfig, ledger: LedgerResult) -> dict[str | None, float]:
    rate = link_of(config)
    found: dict[str | None, float] = {}
    for row in ledger.collectives if rate else ():
        found[row.phase] = found.get(row.phase, 0.0) + row.sent / (rate * 1e9)
    return found


def logical_floor_s(config: ExperimentConfig, ledger: LedgerResult, num_samples: int) -> float | None:
    """Seconds that a logical batch of so many samples takes at least on the named device; None without one.

    The floors of the phases that every physical batch has, once for each physical batch, and those of the
    other phases once. A last batch that is not full counts by its share. Communication may go on beside all
    else.
    """
    floors = floor_s(config, ledger)
    if not floors:
        return None
    num_batches = num_samples / (config.accumulation_steps * config.estimated_batch * config.world_size)
    sending = _communication_by_phase(config, ledger)
    return max(in_logical_step(config, floors, num_batches), in_logical_step(config, sending, num_batches))


def in_logical_step(config: ExperimentConfig, seconds: Mapping[Any, float], times: float) -> float:
    """Seconds by phase added up; those of phases that each physical batch has count so many times."""
    each_batch = trainer_info(config.trainer).each_batch
    each = sum(s for phase, s in seconds.items() if phase in each_batch)
    return sum(seconds.values()) + (times - 1) * each


def assumptions(config: ExperimentConfig, ledger: LedgerResult) -> list[str]:
    """What an estimate rests on that a run would decide, in sentences."""
    found = []
    if config.device == "cpu":
        found.append(
            "what operators take within themselves is what each took in one run of its own on this machine: "
            "it differs with processor, threads and libraries"
        )
    if _UNIQUE in ledger.operators:
        found.append(
            "the ghost norm of embeddings is taken to find all tokens distinct (torch.unique): an upper bound"
        )
    if config.device == "cuda" and _CPU_ATTENTION in ledger.operators:
        found.append(
            "attention is the CPU's fused kernel, with the tensors of CUDA's; only their workspaces differ"
        )
    if config.device == "cuda":
        found.append("the optimizer takes its foreach form, the default on CUDA")
    if config.device == "cuda" and _EMBEDDING in ledger.operators:
        found.append("the sort in the embedding's backward on CUDA is not in it: a few dozen bytes a token")
    if config.world_size > 1:
        found.append(
            "a rank runs alone, with torch's fake process group: what NCCL takes for itself, and memory that "
            "CUDA's streams keep longer, are not in it"
        )
    if config.device == "cuda" and config.precision == "bf16":
        found.append(
            "layer norm, softmax and losses run in fp32 under autocast, as on CUDA (the CPU's keeps bf16)"
        )
    return found


def doubt_words(text: str, num_bytes: int | None) -> str:
    """A doubt as a sentence, with its size where that is known."""
    if num_bytes is None:
        return text
    if num_bytes == 0:
        return f"{text}: this does not raise the peak"
    return f"{text}, up to {size(mib(num_bytes))} more"
