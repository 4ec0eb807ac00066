"""Device memory that an estimated step needs, whether it fits, and what an estimate assumes.

Every item beyond the tensors has a name, so that a reader sees what the total is made of.
"""

from collections.abc import Iterator

from dpprof.config.devices import CONTEXT_MIB, DEVICES, NCCL_MIB, Device
from dpprof.config.experiment import ExperimentConfig
from dpprof.config.training import ADAMW, ADAMW_8BIT, SGD
from dpprof.record.ledger import LedgerResult
from dpprof.vocabulary.formats import size
from dpprof.vocabulary.trainers import OWN_LOOP, short_name
from dpprof.vocabulary.units import GIB, MIB, mib

_CPU_ATTENTION = "aten::_scaled_dot_product_flash_attention_for_cpu"
_EMBEDDING = "aten::embedding_dense_backward"
_UNIQUE = "aten::unique_dim"
OF_OWN_LOOP = (
    "the script ran on fake tensors of the CPU: each counts as the GPU's, but for what data sets of data "
    "loaders hold and for optimizers' counts of steps"
)
# Shares of a predicted time that need no mention.
_SMALL_SHARE = 0.03
# Batches are rounded to multiples of powers of two up to this one.
ROUND_UNIT = 64


def device_of(config: ExperimentConfig) -> Device | None:
    """Return the listed device that a resolved estimate targets, by its name or by a file of its times."""
    return DEVICES.get(config.estimating.gpu)


def capacity_bytes(config: ExperimentConfig) -> int | None:
    """Return the memory of the device that the estimate targets; None if none is given."""
    device = device_of(config)
    gib = config.estimating.device_memory_gib or (device.memory_gib if device else 0)
    return round(gib * GIB) or None


def round_batch(largest: int) -> int:
    """Round a batch down to a multiple of a power of two, as kernels prefer; by at most 1/8."""
    step = min(ROUND_UNIT, 1 << max(0, (largest // 8).bit_length() - 1))
    return largest - largest % step


def saved_by_expandable(ledger: LedgerResult) -> int:
    """Return the bytes that the smallest device needs less with expandable segments; 0 if none or unknown."""
    segments = ledger.segments
    return 0 if segments is None else max(0, segments.least - segments.expandable)


def added_bytes(config: ExperimentConfig, ledger: LedgerResult) -> dict[str, int]:
    """Return the bytes that a device needs beside the tensors, by name.

    Fragmentation is what segments hold beside blocks on the smallest device that runs the step.
    """
    added = dict(ledger.from_allocator)
    if ledger.segments is not None:
        added["fragmentation"] = ledger.segments.least - ledger.peak - sum(added.values())
        if config.world_size > 1:
            added["nccl"] = round(NCCL_MIB * MIB)
    if config.device == "cuda":
        added["cuda_context"] = round(CONTEXT_MIB * MIB)
    return added


def needed_bytes(config: ExperimentConfig, ledger: LedgerResult) -> int:
    """Return the total: peak of the tensors, allocator overhead and memory outside the allocator."""
    return ledger.peak + sum(added_bytes(config, ledger).values())


def doubt_bytes(ledger: LedgerResult) -> int | None:
    """Return by how much doubts, added up, may raise the need; None if one has no bound."""
    sizes = [doubt.num_bytes for doubt in ledger.doubts]
    return None if None in sizes else sum(size for size in sizes if size is not None)


def fits(config: ExperimentConfig, ledger: LedgerResult) -> bool | None:
    """Tell whether the step fits the device; None if the doubts decide or no memory is given."""
    needed, doubt, limit = needed_bytes(config, ledger), doubt_bytes(ledger), capacity_bytes(config)
    if limit is None:
        return None
    if needed > limit:
        return False
    return True if doubt is not None and needed + doubt <= limit else None


def assumptions(config: ExperimentConfig, ledger: LedgerResult) -> list[str]:
    """Return the assumptions of an estimate, as sentences."""
    on_cuda, ran = config.device == "cuda", ledger.operators
    made = {
        "what operators take within themselves is what each took in one run of its own on this machine: it "
        "differs with processor, threads and libraries": not on_cuda,
        "the ghost norm of embeddings is taken to find all tokens distinct (torch.unique): an upper bound": (
            _UNIQUE in ran
        ),
        "attention is the CPU's fused kernel, with the tensors of CUDA's": on_cuda and _CPU_ATTENTION in ran,
        OF_OWN_LOOP: config.trainer == OWN_LOOP,
        "the optimizer takes its foreach form, the default on CUDA": on_cuda
        and config.optimizer in (SGD, ADAMW),
        "the optimizer's state is a formula, that of bitsandbytes' AdamW8bit: two bytes a number and two "
        "float32 for each block of 256, or two float32 a number of tensors with fewer than 4,096": (
            config.optimizer == ADAMW_8BIT
        ),
        "fragmentation is what a simulation of torch's allocator leaves unused on the smallest device that "
        "runs the steps: with its default settings and one stream": on_cuda and ledger.segments is not None,
        "what the allocator loses to fragmentation is not in it": on_cuda and ledger.segments is None,
        "the sort in the embedding's backward on CUDA, from 3,073 tokens on, is not in it: a few dozen bytes "
        "a token": on_cuda and _EMBEDDING in ran,
        "a rank runs alone, with torch's fake process group: what NCCL takes for itself, and memory that "
        "CUDA's streams keep longer, are not in it": config.world_size > 1 and ledger.segments is None,
        "a rank runs alone, with torch's fake process group: memory that CUDA's streams keep longer is not "
        f"in it, and NCCL is assumed to take {NCCL_MIB:g} MiB for itself": (
            config.world_size > 1 and ledger.segments is not None
        ),
        "layer norm, softmax and losses run in fp32 under autocast, as on CUDA (the CPU's keeps bf16), the "
        "logarithm of the softmax in cross entropy apart": on_cuda and config.precision == "bf16",
    }
    return [*(text for text, is_made in made.items() if is_made), *_of_times(config, ledger)]


def _of_times(config: ExperimentConfig, ledger: LedgerResult) -> Iterator[str]:
    """Yield what the predicted time assumes, if that matters."""
    total = ledger.moved_in_step.predicted_s
    shares = {text.replace("_", " "): seconds / total for text, seconds in ledger.assumed_s.items() if total}
    if sum(shares.values()) > _SMALL_SHARE:
        large = [f"{text}, {100 * share:.0f} %" for text, share in shares.items() if share > _SMALL_SHARE]
        trainer, share = short_name(config.trainer), 100 * sum(shares.values())
        told = f"{share:.0f} % of the predicted time of {trainer} rests on times of other operators"
        yield f"{told}, types or GPUs{': ' if large else ''}{'; '.join(large)}"


def doubt_words(text: str, num_bytes: int | None) -> str:
    """Return a doubt as a sentence, with its size if known."""
    if num_bytes is None:
        return text
    if num_bytes == 0:
        return f"{text}: this does not raise the peak"
    return f"{text}, up to {size(mib(num_bytes))} more"
