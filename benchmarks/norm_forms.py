"""What each form of a norm costs: `bk` in all four by the bound on an H100, and measured on this CPU.

    python benchmarks/norm_forms.py > docs/results/norm_forms.md

The bounds are those of estimates in bf16 with AdamW and sequences of 1,024. Steps are measured on one thread
by the processor time that they take, in rounds that alternate: others on the machine disturb that least. It
takes about ten minutes.
"""

import statistics
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import opacus
import torch
from trainers import CELLS, made_by

from dpprof.config.estimating import EstimatingConfig
from dpprof.config.experiment import ExperimentConfig
from dpprof.config.flat import parse_experiment, with_own_options
from dpprof.measure.experiment import run_experiment
from dpprof.measure.observe import Observer
from dpprof.measure.trainers.training import Training
from dpprof.record.figures.capacity import needed_bytes
from dpprof.record.figures.step import LogicalStep
from dpprof.record.folder import RunFolder
from dpprof.vocabulary.clipping import NORM_FORMS
from dpprof.vocabulary.formats import markdown_table
from dpprof.vocabulary.theory import LayerRow
from dpprof.vocabulary.units import GIB

TRAINER = "DPBookKeepingTrainer"
TARGET, BATCHES = "H100", {"1b": 4, "7b": 1}
NUM_ROUNDS = 5
NOTE = """\
All with `bk`. `cached` is what the L2 may keep from the memory, as the bound assumes. Steps on the CPU are
measured by processor time on one thread, as the machine was shared with other work. Where a bound depends on
the optimizer's step above all, as for 7b at batch 1, forms differ less than at a larger batch.
"""


def forms_of(layers: list[LayerRow]) -> str:
    """The forms that its layers got, the most frequent first."""
    counts = Counter(row.norm or "" for row in layers if row.norm)
    return ", ".join(f"{name} {number}" for name, number in counts.most_common())


def bounds(size: str) -> str:
    """A table of the forms for a model on the target."""
    rows = []
    for form in NORM_FORMS:
        values = {"trainer": TRAINER, "norm": form, "model_size": size, "target": TARGET, "savings": False}
        values |= {"batch_size": BATCHES[size], "seq_len": 1024, "precision": "bf16", "optimizer": "adamw"}
        config = parse_experiment(values, EstimatingConfig).resolve(cuda_available=True)
        with TemporaryDirectory() as folder:
            record = run_experiment(config, RunFolder(Path(folder)), lambda _: None)
        ledger = record.ledger
        assert ledger is not None, "it was estimated"
        moved = ledger.moved_in_step
        rows.append(
            [
                form,
                f"{1e3 * (LogicalStep.of(config, ledger).seconds or 0):.1f}",
                f"{moved.flops / 1e12:.1f}",
                f"{moved.fp32_flops / 1e12:.1f}",
                f"{moved.num_bytes / 1e9:.0f}",
                f"{moved.cached / 1e9:.0f}",
                f"{needed_bytes(config, ledger) / GIB:.1f}",
                forms_of(ledger.layers),
            ]
        )
    header = ["norm", "step ms or more", "TFLOP", "in fp32", "GB moved", "cached", "needs GiB", "layers"]
    return markdown_table(header, rows, right=1)


def measured(cell: str) -> str:
    """A table of the forms for a model on this CPU."""
    trainings = {}
    for form in NORM_FORMS:
        config = ExperimentConfig(trainer=TRAINER, device="cpu", options={"norm": form}, **CELLS[cell])
        trainings[form] = Training(with_own_options(config).resolve(cuda_available=False))
    seconds: dict[str, list[float]] = {form: [] for form in NORM_FORMS}
    for index in range(1 + NUM_ROUNDS):
        for form, training in trainings.items():
            start = time.process_time()
            training.run(1, Observer())
            if index:
                seconds[form].append(time.process_time() - start)
    medians = {form: statistics.median(taken) for form, taken in seconds.items()}
    fastest = min(medians.values())
    rows = [
        [
            form,
            f"{1e3 * medians[form]:.0f}",
            f"{1e3 * (max(taken) - min(taken)) / 2:.0f}",
            f"{medians[form] / fastest:.2f}",
            ", ".join(
                dict.fromkeys(
                    cost.form for cost in trainings[form].trainer.norm_costs().values() if cost.form
                )
            ),
        ]
        for form, taken in seconds.items()
    ]
    return markdown_table(["norm", "step ms", "± half range", "x the fastest", "forms"], rows, right=1)


def main() -> None:
    torch.set_num_threads(1)
    print("# Forms of a norm, by their bounds and measured\n")
    print(made_by("norm_forms.py", NUM_ROUNDS, (torch, opacus)))
    print(NOTE)
    for size, batch in BATCHES.items():
        print(f"## {size} on an {TARGET}, batch {batch}, bf16, by the bound\n\n{bounds(size)}", flush=True)
    for cell in CELLS:
        print(f"## {cell}, on the CPU\n\n{measured(cell)}", flush=True)


if __name__ == "__main__":
    main()
