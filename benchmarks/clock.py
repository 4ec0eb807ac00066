"""How wrong are predicted step times?

    python benchmarks/clock.py > docs/results/clock.md

    dpprof calibrate --device cpu
    dpprof calibrate --device cpu --world-size 2
    python benchmarks/clock.py runs/calibration-.../times.json runs/calibration-.../times.json

Whole steps on GPUs that others measured, and published costs of privacy; with tables of one and of two ranks
also this machine's processor, which takes 40 minutes on 2 idle cores. Nothing is fitted to what is predicted.
"""

import csv
import itertools
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import opacus
import torch
import transformers
from trainers import versions_of

import dpprof
from dpprof.config.estimating import EstimatingConfig
from dpprof.config.flat import parse_experiment
from dpprof.config.measuring import MeasuringConfig
from dpprof.drive.launch.job import measuring_job
from dpprof.drive.launch.local import LocalLauncher
from dpprof.measure.experiment import run_experiment
from dpprof.record.figures.step import LogicalStep, TimeRange
from dpprof.record.folder import RunFolder
from dpprof.record.record import Record
from dpprof.vocabulary.formats import markdown_table

STEPS = Path(__file__).with_name("clock_steps")
TABLES = Path(dpprof.__file__).parent / "config" / "times"
# Names in the measurements, and the tables of these very GPUs.
GPUS = {"NVIDIA H100 80GB HBM3": "H100", "Tesla V100-PCIE-32GB": "V100-32GB"}
TRAINERS = ("standard", "flat", "ghost", "fast", "bk", "mixed")
BATCHES = (2, 8)
SMALL: dict[str, Any] = {"model_size": "small", "seq_len": 128, "batch_size": 4, "device": "cpu"}
ON_RANKS = {"ddp": TRAINERS, "fsdp2": ("standard", "ghost", "fast", "bk", "mixed")}
ALONE = "--alone"  # one experiment in a process of its own
# Times that each step is measured, in processes of their own.
ROUNDS = 2
GPT2 = {"workload": "huggingface:gpt2", "model_config": "n_layer=2", "seq_len": 64}
ON_CPU: dict[str, dict[str, Any]] = {
    **{f"small, sequence {length}": {"model_size": "small", "seq_len": length} for length in (64, 128, 256)},
    "gpt2 with two layers, sequence 64": GPT2,
    "the same, LoRA of rank 8": GPT2 | {"train": "lora"},
    "resnet-50, images of 64 x 64": {"workload": "huggingface:resnet-50", "image_size": 64},
    "vit-base, images of 64 x 64": {"workload": "huggingface:vit-base", "image_size": 64},
}
ROBERTA_LARGE = (
    "hidden_size=1024,num_hidden_layers=24,num_attention_heads=16,intermediate_size=4096,"
    "attn_implementation=eager"
)
DPZERO: dict[str, Any] = {
    "workload": "huggingface:roberta-base",
    "model_config": ROBERTA_LARGE,
    "batch_size": 64,
    "seq_len": 128,
    "optimizer": "adamw",
    "device": "cuda",
    "target": "RTX-3090",
}
LORA = {"train": "lora"}
# Published ratios: how the two steps differ, and the figure.
RATIOS: dict[str, tuple[dict[str, Any], dict[str, Any], float]] = {
    "ghost / standard": ({"trainer": "ghost"}, {"trainer": "standard"}, 1.70),
    "book-keeping / standard": ({"trainer": "bk"}, {"trainer": "standard"}, 1.24),
    "DP-LoRA / LoRA, one backward": (LORA | {"trainer": "flat"}, LORA | {"trainer": "standard"}, 1.28),
    "DP-LoRA / LoRA, two backwards": (LORA | {"trainer": "ghost"}, LORA | {"trainer": "standard"}, 1.28),
}


Step = tuple[str, int]


class Told(NamedTuple):
    """A predicted and a measured time, in seconds."""

    predicted: TimeRange
    measured: float

    @property
    def error(self) -> float:
        """Relative error of the predicted time."""
        return self.predicted.seconds / self.measured - 1

    @property
    def holds(self) -> bool:
        """True if the range holds the measured time."""
        return self.predicted.least <= self.measured <= self.predicted.most


class Steps(NamedTuple):
    """Measured steps: the fastest one with its phases, and the median, in seconds."""

    fastest: float
    phases: dict[str, float]
    median: float

    @classmethod
    def of(cls, rounds: list[dict[str, Any]]) -> "Steps":
        """Take the steps of all rounds together."""
        step_s = [s for one in rounds for s in one["steps"]]
        fastest = min(step_s)
        one = next(one for one in rounds if fastest in one["steps"])
        place = one["steps"].index(fastest)
        phases = {name: each[place] for name, each in one["phases"].items()}
        return cls(fastest, phases, statistics.median(step_s))


def main() -> None:
    if sys.argv[1:2] == [ALONE]:
        print(json.dumps(alone(sys.argv[2], json.loads(sys.argv[3]))))
        return
    print("# Predicted step times beside measured ones\n")
    print(f"Made by `python benchmarks/clock.py`, {versions_of((torch, opacus, transformers))}.\n")
    print("Each error is the predicted time over the measured one. `held` says whether the range holds it.\n")
    gpus()
    if len(sys.argv) > 1:
        processor(sys.argv[1])
    if len(sys.argv) > 2:
        ranks(sys.argv[2])
    published()


def gpus() -> None:
    print("## Whole training steps on GPUs\n")
    print(
        "Forward and backward in fp32 without TF32, eager attention, dropout on: measured by the authors of\n"
        "NeuSight (ASPLOS 2025, github.com/sitar-lab/NeuSight 6945927, MIT licence), with `empty_cache()`\n"
        "before each. The tables have single operators alone; no step is in them.\n"
    )
    rows, told = [], []
    for row in csv.DictReader((STEPS / "steps_fp32.csv").open()):
        settings = {
            "workload": f"huggingface:{STEPS / row['model']}",
            "task": "causal-lm",
            "model_config": "attn_implementation=eager" + ",is_decoder=true" * (row["model"] == "bert_large"),
            "trainer": "standard",
            "batch_size": int(row["batch_size"]),
            "seq_len": int(row["seq_len"]),
            "device": "cuda",
            "target": str(TABLES / f"{GPUS[row['device']]}.json"),
        }
        phases = predicted(settings)
        one = Told(total(phases, ("forward", "backward")), float(row["whole_ms"]) / 1e3)
        told.append(one)
        rows.append([row["device"], f"{row['model']}, {row['batch_size']} x {row['seq_len']}", *shown(one)])
    print(markdown_table(["GPU", "step", "predicted ms", "from", "to", "measured ms", "error", "held"], rows))
    print(f"{summary(told)}\n", flush=True)


def processor(times: str) -> None:
    print("## This processor\n")
    print(
        "`table` predicts batch 8 from the table alone. `from batch 2` also takes the measured step of\n"
        "batch 2, as a plan does: each phase grows as predicted. Ratios are to standard training. Trainers\n"
        "take turns, in two rounds. This machine is shared: others slow all down by up to a half, for\n"
        "seconds or minutes. So the fastest step counts, as the faster round of an operator does in a\n"
        "calibration; the median stands beside it, and `held` is by the median.\n"
    )
    rows = []
    by_table: list[Told] = []
    held: list[bool] = []
    from_two: list[float] = []
    ratios: list[float] = []
    for cell, settings in ON_CPU.items():
        expected, taken = taken_in(settings, times)
        standard = Told(total(expected["standard", 8]), taken["standard", 8].fastest)
        for trainer in TRAINERS:
            (small, before), (large, after) = (
                (expected[trainer, batch], taken[trainer, batch]) for batch in BATCHES
            )
            told = Told(total(large), after.fastest)
            by_table.append(told)
            held.append(Told(told.predicted, after.median).holds)
            from_two.append(scaled(before, small, large) / after.fastest - 1)
            ratio = told.predicted.seconds / standard.predicted.seconds
            ratio_error = ratio / (told.measured / standard.measured) - 1
            ratios.append(ratio_error)
            rows.append(
                [
                    cell,
                    trainer,
                    *(f"{1e3 * s:.1f}" for s in (*told.predicted, after.fastest, after.median)),
                    percent(told.error),
                    "yes" if held[-1] else "no",
                    percent(from_two[-1]),
                    f"{ratio:.2f}",
                    percent(ratio_error),
                ]
            )
        print(rows[-len(TRAINERS) :], file=sys.stderr, flush=True)
    headings = ["model", "trainer", "predicted ms", "from", "to", "fastest ms", "median ms", "table", "held"]
    print(markdown_table([*headings, "from batch 2", "ratio", "its error"], rows))
    print(f"Table: {errors([one.error for one in by_table])}. The range holds {sum(held)} of {len(held)}.")
    print(
        f"From batch 2: {errors(from_two)}. Ratios to standard by the table: {errors(ratios)}.\n", flush=True
    )


def scaled(before: Steps, small: dict[str, TimeRange], large: dict[str, TimeRange]) -> float:
    """Return a measured step's seconds if each phase grows as predicted."""
    between = before.fastest - sum(before.phases.values())
    return between + sum(
        s * (large[name].seconds / small[name].seconds if small[name].seconds else 1.0)
        for name, s in before.phases.items()
    )


def taken_in(settings: dict[str, Any], times: str) -> tuple[dict[Step, Any], dict[Step, Steps]]:
    """Return each step's predicted phases, and its measured times: trainers and batches take turns."""
    steps = list(itertools.product(TRAINERS, BATCHES))
    each = {
        (trainer, batch): {"trainer": trainer, "batch_size": batch, "device": "cpu", **settings}
        for trainer, batch in steps
    }
    with ThreadPoolExecutor(2) as pool:
        found = pool.map(predicted, (each[step] | {"target": times} for step in steps))
        expected = dict(zip(steps, found, strict=True))
    rounds = [{step: measured(each[step]) for step in steps} for _ in range(ROUNDS)]
    taken = {step: Steps.of([one[step] for one in rounds]) for step in steps}
    return expected, taken


def ranks(times: str) -> None:
    print("## Two ranks on this processor\n")
    print(
        "`small`, sequence 128, batch 4 on each of two ranks with a thread each, by gloo. The table is of\n"
        "two ranks that were measured at the same time. The fastest step of two rounds counts.\n"
    )
    rows, told = [], []
    for way, trainers in ON_RANKS.items():
        for trainer in trainers:
            settings = {**SMALL, "trainer": trainer, "parallel": way, "world_size": 2}
            expected = predicted(settings | {"target": times})
            steps = Steps.of([measured(settings) for _ in range(ROUNDS)])
            told.append(Told(total(expected), steps.fastest))
            rows.append([way, trainer, *shown(told[-1])])
    print(
        markdown_table(["way", "trainer", "predicted ms", "from", "to", "fastest ms", "error", "held"], rows)
    )
    print(f"{summary(told)}\n", flush=True)


def published() -> None:
    print("## The cost of privacy as published\n")
    print(
        "RoBERTa-large, batch 64, sequence 128 (the script's limit for SST-2), AdamW, on an RTX 3090, by\n"
        "DPZero (ICML 2024, tables 3, 9, 11). There is no table of an RTX 3090: efficiencies are those of\n"
        "other GPUs. How DP-LoRA clips is not said: its figure lies between those of one backward pass\n"
        "(flat) and of two (ghost).\n"
    )
    rows = []
    for name, (private, standard, figure) in RATIOS.items():
        one, other = (total(predicted(DPZERO | changed)) for changed in (private, standard))
        ratio = one.seconds / other.seconds
        steps = [f"{1e3 * each.seconds:.0f}" for each in (one, other)]
        rows.append([name, *steps, f"{ratio:.2f}", f"{figure:.2f}", percent(ratio / figure - 1)])
    print(markdown_table(["ratio", "private ms", "standard ms", "predicted", "published", "error"], rows))


def predicted(settings: dict[str, Any]) -> dict[str, TimeRange]:
    """Return each phase's predicted time."""
    found = in_process("estimate", settings)
    return {phase: TimeRange(*time) for phase, time in found.items()}


def measured(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the seconds of measured steps, and of their phases."""
    found: dict[str, Any] = in_process("measure", settings)
    return found


def in_process(how: str, settings: dict[str, Any]) -> Any:
    """Run one experiment in a fresh process."""
    command = [sys.executable, __file__, ALONE, how, json.dumps(settings)]
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode:
        sys.exit(f"{settings}: {ended.stderr}")
    return json.loads(ended.stdout.splitlines()[-1])


def alone(how: str, settings: dict[str, Any]) -> Any:
    """Estimate or measure an experiment here."""
    if how == "estimate":
        config = parse_experiment(settings | {"savings": False}, EstimatingConfig).resolve(
            cuda_available=True
        )
        record = run(config)
        assert record.ledger is not None
        return LogicalStep.of(config, record.ledger).by_phase
    settings = settings | {"passes": "clean", "warmup_steps": 1, "measured_steps": 4}
    measuring = parse_experiment(settings, MeasuringConfig).resolve(cuda_available=False)
    record = run(measuring) if measuring.world_size == 1 else run_ranks(measuring)
    return {"steps": record.step_s, "phases": record.phase_s}


def run(config: Any) -> Record:
    with TemporaryDirectory() as folder:
        return run_experiment(config, RunFolder(Path(folder)), lambda text: None)


def run_ranks(config: Any) -> Record:
    with TemporaryDirectory() as path:
        folder = RunFolder(Path(path, "run"))
        folder.create(config)
        handle = LocalLauncher().submit(measuring_job(config, folder, 600), lambda line: None)
        while handle.poll() is None:
            time.sleep(0.1)
        record = folder.read_record()
        assert record is not None, folder.log.read_text()
        return record


def total(phases: dict[str, TimeRange], names: Sequence[str] = ()) -> TimeRange:
    chosen = [time for name, time in phases.items() if name in (names or phases)]
    return TimeRange(*map(sum, zip(*chosen, strict=True)))


def shown(told: Told) -> Iterator[str]:
    yield from (f"{1e3 * seconds:.1f}" for seconds in (*told.predicted, told.measured))
    yield percent(told.error)
    yield "yes" if told.holds else "no"


def percent(error: float) -> str:
    return f"{100 * error:+.1f} %"


def summary(told: list[Told]) -> str:
    held = sum(one.holds for one in told)
    return f"{errors([one.error for one in told])}. The range holds {held} of {len(told)}."


def errors(found: list[float]) -> str:
    sizes = [abs(error) for error in found]
    mean, median, worst = (100 * of(sizes) for of in (statistics.fmean, statistics.median, max))
    return f"mean error {mean:.1f} %, median {median:.1f} %, worst {worst:.1f} %"


if __name__ == "__main__":
    main()
