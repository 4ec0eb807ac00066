"""Device memory that an estimated step needs, whether it fits, and the least time it takes.

Every item beyond the tensors has a name, so that a reader sees what the total is made of.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from dpprof.config.devices import CONTEXT_MIB, DEVICES, NCCL_MIB, Device
from dpprof.config.experiment import ExperimentConfig
from dpprof.config.flat import from_flat
from dpprof.config.training import ADAMW, ADAMW_8BIT, SGD
from dpprof.record.ledger import CollectiveRow, LedgerResult, Moved, PhaseTime
from dpprof.record.record import Record
from dpprof.vocabulary.formats import fixed, size
from dpprof.vocabulary.precision import BF16, is_short
from dpprof.vocabulary.trainers import OWN_LOOP, short_name, trainer_info
from dpprof.vocabulary.units import GIB, MIB, mib, ms

_CPU_ATTENTION = "aten::_scaled_dot_product_flash_attention_for_cpu"
_EMBEDDING = "aten::embedding_dense_backward"
_UNIQUE = "aten::unique_dim"
OF_OWN_LOOP = (
    "the script ran on fake tensors of the CPU: each counts as the GPU's, but for what data sets of data "
    "loaders hold and for optimizers' counts of steps"
)
# Relative difference of two predicted times below which they do not tell which step is faster.
BOUNDS_DOUBT = 0.2
# Shares of a predicted time that need no mention.
_SMALL_SHARE = 0.03
# A step is launch-bound if its GPU waits for the host for a larger share of it.
_MOSTLY = 0.5
# Factor by which a target's host may be slower or faster, as 0.3 assumed.
_HOST_DOUBT = 2.0
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


def _added(config: ExperimentConfig, ledger: LedgerResult) -> dict[str, int]:
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
    return ledger.peak + sum(_added(config, ledger).values())


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


def floor_s(config: ExperimentConfig, ledger: LedgerResult, weights_dtype: str = "") -> dict[str, float]:
    """Return the least seconds that each phase takes on the named device; empty without one.

    This is the longer of two times: moving the bytes that the last cache cannot hold, and computing the
    FLOPs, where autocast or `weights_dtype` allow it in a short type. It is a lower bound for eager
    execution, not a prediction: launches, waits and inefficiency are not in it.
    """
    device = device_of(config)
    if device is None:
        return {}
    moved = ledger.moved(by=lambda row: row.phase)
    by_phase = {phase: moved.get(phase, Moved()) for phase in ledger.phase_peak}
    precision = BF16 if is_short(config.precision, weights_dtype) else config.precision
    return {
        phase: device.least_s(precision, one.through_memory, one.flops, one.fp32_flops)
        for phase, one in by_phase.items()
    }


class TimeRange(NamedTuple):
    """Predicted seconds, and the least and the most that they may be."""

    seconds: float
    least: float
    most: float


def predicted_s(config: ExperimentConfig, ledger: LedgerResult) -> dict[str, TimeRange]:
    """Return the predicted time of each phase on the target; empty where nothing is predicted.

    What ranks send in forward and backward overlaps with these on GPUs, but for the last one; else it comes
    on top.
    """
    alone = {phase: _range(time) for phase, time in ledger.phase_s.items()} or _of_rows(ledger)
    overlapping = trainer_info(config.trainer).overlapping
    found = {}
    for phase in ledger.phase_peak if alone else ():
        times = alone.get(phase, TimeRange(0.0, 0.0, 0.0))
        taken = [(_sending_s(config, row), row.calls) for row in ledger.collectives if row.phase == phase]
        sent = sum(seconds for seconds, _ in taken)
        last = max((seconds / max(1, calls) for seconds, calls in taken), default=0.0)
        if config.device == "cuda" and phase in overlapping:
            found[phase] = TimeRange(*(max(each, sent - last) + last for each in times))
        else:
            found[phase] = TimeRange(*(each + sent for each in times))
    return found


def _range(time: PhaseTime) -> TimeRange:
    """Return a phase's time with its range. In a slower step a phase may wait less: all three count."""
    found = time.seconds, time.least_s, time.most_s
    return TimeRange(time.seconds, min(found), max(found))


def _of_rows(ledger: LedgerResult) -> dict[str, TimeRange]:
    """Return the times of a ledger of 0.3: those of the operators, or until the host has issued them."""
    moved = ledger.moved(by=lambda row: row.phase)
    if not any(one.predicted_s for one in moved.values()):
        return {}
    found = {}
    issued, ended = [0.0] * 3, [0.0] * 3
    for phase in ledger.phase_peak:
        one = moved.get(phase, Moved())
        before, on_device = ended, (one.least_s, one.predicted_s, one.most_s)
        hosts = (one.host_s / _HOST_DOUBT, one.host_s, one.host_s * _HOST_DOUBT)
        issued = [sum(pair) for pair in zip(issued, hosts, strict=True)]
        ended = [max(b + t, i) for b, t, i in zip(before, on_device, issued, strict=True)]
        least, middle, most = (end - start for start, end in zip(before, ended, strict=True))
        found[phase] = TimeRange(middle, min(least, middle), max(most, middle))
    return found


class Bound(NamedTuple):
    """Shares of a GPU's predicted step by what bounds it, and the operators that the step issues.

    The GPU moves data, computes, or waits for the host to issue operators. `phases` has what each takes.
    """

    memory: float
    arithmetic: float
    host: float
    operators: int
    phases: Mapping[str, PhaseTime]

    @classmethod
    def of(cls, ledger: LedgerResult, step: TimeRange | None) -> "Bound | None":
        """Return the shares of a step on a GPU, which ranks' sending may lengthen; None if not predicted."""
        phases = ledger.phase_s.values()
        alone, operators = sum(each.seconds for each in phases), sum(each.operators for each in phases)
        if not alone or not operators or step is None:
            return None
        within = ledger.moved(by=lambda row: row.phase is not None).get(True, Moved())
        waiting, seconds = max(0.0, alone - within.predicted_s), step.seconds
        moving = within.predicted_s - within.arithmetic_s
        shares = (moving / seconds, within.arithmetic_s / seconds, waiting / seconds)
        return cls(*shares, operators, ledger.phase_s)

    @property
    def is_launch_bound(self) -> bool:
        """True if the GPU waits more than half of the step for the host."""
        return self.host > _MOSTLY

    @property
    def words(self) -> str:
        """Say that the step is launch-bound; empty if it is not."""
        waits = f"{100 * self.host:.0f} % of it for the host to issue {self.operators:,} operators"
        return f"is launch-bound: the GPU waits {waits}" if self.is_launch_bound else ""


def time_range(predicted: TimeRange) -> str:
    """Format a predicted time with its range."""
    middle, least, most = (fixed(ms(seconds), 1 if predicted.least > 0.1 else 2) for seconds in predicted)
    return f"{middle} ms ({least} to {most})"


def step_of(phases: Mapping[str, TimeRange]) -> TimeRange | None:
    """Return the sum of phases; None if there are none."""
    return TimeRange(*map(sum, zip(*phases.values(), strict=True))) if phases else None


def link_of(config: ExperimentConfig) -> float:
    """Return the link's GB/s, as given or that of the target device; 0 if not known."""
    device = device_of(config)
    return config.estimating.link_gb_per_s or (device.link_gb_per_s if device else 0.0)


def _sending_s(config: ExperimentConfig, row: CollectiveRow) -> float:
    """Return the seconds of collectives: as measured ones took, or by the link's rate if that is given."""
    if row.predicted_s is not None and not config.estimating.link_gb_per_s:
        return row.predicted_s
    rate = link_of(config)
    return row.sent / (rate * 1e9) if rate else 0.0


def logical_predicted_s(config: ExperimentConfig, ledger: LedgerResult, num_samples: int) -> TimeRange | None:
    """Return the predicted seconds of a logical batch of `num_samples`; None where nothing is predicted.

    Phases that every physical batch has count once per physical batch, the others once. A last batch that is
    not full counts by its share.
    """
    phases = predicted_s(config, ledger)
    num_batches = num_samples / (config.accumulation_steps * config.estimated_batch * config.world_size)
    each = ({phase: time[i] for phase, time in phases.items()} for i in range(3))
    return TimeRange(*(in_logical_step(config, one, num_batches) for one in each)) if phases else None


def in_logical_step(config: ExperimentConfig, seconds: Mapping[Any, float], num_batches: float) -> float:
    """Return the seconds of a logical step of `num_batches` physical batches from those by phase of one."""
    each_batch = trainer_info(config.trainer).each_batch
    each = sum(s for phase, s in seconds.items() if phase in each_batch)
    return sum(seconds.values()) + (num_batches - 1) * each


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


@dataclass(frozen=True)
class EstimateFigures:
    """Memory that the step needs on the device, and the least time it takes there.

    `added_mib` is the overhead beside the tensors, by name. `doubts_mib` bounds each thing that the estimate
    cannot follow, without those that have no bound; `doubt_mib` is their sum. `growth_mib` is what each step
    leaves alive, if anything. `fits` is None if doubts decide or no memory is given. `floor_s` goes by phase
    and is empty without a named device. `communication_s` is the ranks' least time for sending, None if the
    link's rate is not known. `predicted_s` goes by phase too, and is empty where nothing is predicted.
    `bound` says what a GPU's step is bound by, where that is predicted.
    """

    added_mib: dict[str, float]
    doubts_mib: dict[str, float]
    doubt_mib: float | None
    growth_mib: float | None
    needed_mib: float
    capacity_mib: float | None
    fits: bool | None
    floor_s: dict[str, float]
    communication_s: float | None
    predicted_s: dict[str, TimeRange]
    bound: Bound | None

    @property
    def step_predicted_s(self) -> TimeRange | None:
        """Predicted time of the step."""
        return step_of(self.predicted_s)

    @property
    def step_floor_s(self) -> float | None:
        """Least seconds of the step; communication may overlap with everything else."""
        known = [seconds for seconds in (sum(self.floor_s.values()), self.communication_s) if seconds]
        return max(known, default=None)

    @classmethod
    def of(cls, record: Record, ledger: LedgerResult) -> Self:
        """Return the figures of an estimate's record."""
        config = from_flat(record.config)
        added = _added(config, ledger)
        in_doubt, limit, rate = doubt_bytes(ledger), capacity_bytes(config), link_of(config)
        sent = sum(row.sent for row in ledger.collectives)
        predicted = predicted_s(config, ledger)
        return cls(
            added_mib={name: mib(num_bytes) for name, num_bytes in added.items()},
            doubts_mib={d.name: mib(d.num_bytes) for d in ledger.doubts if d.num_bytes is not None},
            doubt_mib=mib(in_doubt) if ledger.doubts and in_doubt is not None else None,
            growth_mib=mib(ledger.growth) if ledger.growth > 0 else None,
            needed_mib=mib(needed_bytes(config, ledger)),
            capacity_mib=None if limit is None else mib(limit),
            fits=fits(config, ledger),
            floor_s=floor_s(config, ledger, record.weights_dtype),
            communication_s=sent / (rate * 1e9) if rate and ledger.collectives else None,
            predicted_s=predicted,
            bound=Bound.of(ledger, step_of(predicted)),
        )


def fit_sentence(
    is_held: bool, fits: bool | None, growth_mib: float | None, doubt_mib: float | None, device: str = ""
) -> str:
    """Say whether an estimate fits a device, or why that is open; empty if no device is given."""
    if not is_held:
        return ""
    if fits is not None:
        return f"{'fits' if fits else 'does not fit'} {device}".rstrip()
    if growth_mib is not None:
        why = f"every step leaves {size(growth_mib)} more alive"
    elif doubt_mib is not None:
        why = f"up to {size(doubt_mib)} more are in doubt"
    else:
        why = "nothing bounds what is in doubt"
    return f"may or may not fit {device}".rstrip() + f", as {why}"
