"""Does `loop=documented` hold and move what the loops of PyTorch's and Opacus's tutorials do?

    python benchmarks/documented_loop.py > docs/results/documented_loop.md

For each trainer on `small` (batch 4, sequence 128) and `medium` (batch 4, sequence 512): the peak of a step
by the allocator's events, dpprof's trainer against the tutorial's own calls, with `make_private` where it
makes the algorithm; the peak and the traffic on fake tensors likewise; and what each saving saves. A few
minutes on 2 cores, most of them for `medium` on real tensors.
"""

import gc
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import opacus
import torch
from torch.profiler import ProfilerActivity, profile, record_function
from tutorial_loops import make_loop

from dpprof.config.experiment import ExperimentConfig
from dpprof.measure.environment import describe_environment
from dpprof.measure.observe import Observer
from dpprof.measure.passes.account import Account
from dpprof.measure.passes.events import read
from dpprof.measure.passes.ledger import Kept, Ledger, keep_ledger
from dpprof.measure.passes.memory import AllocatedBytes
from dpprof.measure.trainers.build import load_trainer
from dpprof.measure.trainers.fake_tensors import fake_tensors
from dpprof.measure.trainers.training import Training
from dpprof.measure.workloads.workload import build_workload
from dpprof.record.ledger import TrafficRow
from dpprof.vocabulary.formats import markdown_table
from dpprof.vocabulary.phases import STEP_LABEL
from dpprof.vocabulary.trainers import TRAINERS
from dpprof.vocabulary.units import MIB

CELLS = (("small", 4, 128), ("medium", 4, 512))
NUM_STEPS = 3


def allocated(train: Callable[[], object]) -> list[tuple[int, int]]:
    """Peak of each step and bytes at its end, from the allocator's own events."""
    gc.collect()  # what an earlier training left must not be freed within a step
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        kept = train()
    recording = read(profiler, "cpu")
    del kept
    levels = AllocatedBytes(recording, 0)
    return [(levels.peak(step), levels.at(step.end)) for step in recording.steps]


def train_ours(config: ExperimentConfig) -> Training:
    """Some steps of dpprof's trainer."""
    training = Training(config)
    training.run(NUM_STEPS, Observer())
    return training


def train_theirs(config: ExperimentConfig) -> object:
    """As many steps of the tutorial's loop."""
    workload = build_workload(config)
    loop = make_loop(config, workload)
    loop(itertools.islice(workload.batches, NUM_STEPS), lambda: record_function(STEP_LABEL))
    return workload, loop


def keep_ours(config: ExperimentConfig, *, with_savings: bool = False) -> Kept:
    """The ledger of dpprof's trainer."""

    def build() -> Training:
        return Training(config)

    return keep_ledger(build, Ledger("cpu"), 1, with_savings=with_savings)


def keep_theirs(config: ExperimentConfig) -> tuple[Account, list[TrafficRow]]:
    """The account and the traffic of the tutorial loop's second step."""
    with Ledger("cpu") as ledger, ledger.counting():
        kept: list[tuple[Account, list[TrafficRow]]] = []

        @contextmanager
        def around_step() -> Iterator[None]:
            ledger.storages.start_step()
            ledger.take_traffic()
            yield
            kept.append((Account(ledger.storages.end_step()), ledger.take_traffic()))

        workload = build_workload(config)
        loop = make_loop(config, workload)
        loop(itertools.islice(workload.batches, 2), around_step)
    return kept[-1]


def moved(traffic: list[TrafficRow]) -> int:
    """Bytes read and written."""
    return sum(row.read + row.written for row in traffic)


def row(config: ExperimentConfig) -> list[str]:
    """One trainer of a cell: peaks and traffic of both sides in bytes, and the savings in MiB."""
    ours, theirs = (max(p for p, _ in allocated(lambda f=f: f(config))) for f in (train_ours, train_theirs))  # type: ignore
    with fake_tensors(load_trainer(config.trainer)):
        kept = keep_ours(config, with_savings=True)
    with fake_tensors(load_trainer(config.trainer)):
        account, traffic = keep_theirs(config)
    saved = [
        f"{kept.saved[name] / MIB:.1f}" if name in kept.saved else "" for name in ("outputs", "gradients")
    ]
    return [
        f"{config.model_size} {config.batch_size}x{config.seq_len}",
        config.trainer,
        *(f"{num_bytes:,}" for num_bytes in (theirs, ours - theirs)),
        *(f"{num_bytes:,}" for num_bytes in (account.peak, kept.account.peak - account.peak)),
        *(f"{num_bytes:,}" for num_bytes in (moved(traffic), moved(kept.result.traffic) - moved(traffic))),
        *saved,
    ]


def main() -> None:
    configs = [
        ExperimentConfig(
            trainer=trainer, model_size=size, batch_size=batch_size, seq_len=seq_len, device="cpu"
        ).resolve(cuda_available=False)
        for size, batch_size, seq_len in CELLS
        for trainer in TRAINERS
    ]
    machine = describe_environment("cpu")
    header = [
        "cell",
        "trainer",
        "tutorial's peak [bytes]",
        "dpprof's - it",
        "on fake tensors",
        "dpprof's - it",
    ]
    header += ["tutorial's traffic [bytes]", "dpprof's - it", "no output kept saves MiB", "set_to_none saves"]
    print(
        "The tutorials' own training loops against `loop=documented`, and what the savings of the lean loop\n"
        f"would save. torch {torch.__version__}, Opacus {opacus.__version__}, {machine['cpu']}.\n"
    )
    print(markdown_table(header, [row(config) for config in configs], right=2))


if __name__ == "__main__":
    main()
