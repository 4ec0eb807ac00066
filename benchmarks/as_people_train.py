"""Trains as people do, with every trainer: is the gradient right, and the estimate?

    python benchmarks/as_people_train.py FOLDER > docs/results/as_people_train.md

Weights in bf16, adapters, checkpointing, TF32, Adafactor, and what trains. On the CPU small models are
trained: their gradient against the naive loop over samples in the same types, and the peaks of the estimate
and the ledger against that of torch's allocator. For GPUs larger ones take their steps on the stand-in that
lies in FOLDER (`phantom/stand_in.py`), whose allocator is torch's, and are estimated; its
`as_people_train.jsonl` keeps what is done. About half an hour on 2 cores.
"""

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import opacus
import torch
import transformers
from trainers import versions_of

from dpprof.errors import DpprofError
from dpprof.measure.experiment import PassFailed
from dpprof.record.figures.verdicts import GRADIENT_CHECK, verdicts
from dpprof.record.record import Record
from dpprof.vocabulary.formats import markdown_table
from dpprof.vocabulary.trainers import DEFAULT_TRAINERS, short_name

sys.path += [str(Path(__file__).parent / "phantom"), str(Path(__file__).parent.parent / "tests")]
from example_families import SMALL
from example_runs import known, measured
from phantom_matrix import Case, estimated, on_stand_in

GPU = "A100"
LLAMA: dict[str, Any] = {"workload": "huggingface:llama-1b", "train": "lora", "weights_dtype": "bf16"}
GPT2: dict[str, Any] = {"workload": "huggingface:gpt2"}


class Setting(NamedTuple):
    """A training; `on_gpu` says how much of it on the stand-in."""

    name: str
    how: dict[str, Any]
    on_gpu: dict[str, Any]


SETTINGS = [
    Setting("bf16 base, fp32 adapters", LLAMA, {"batch_size": 2, "seq_len": 256}),
    Setting("all in bf16", LLAMA | {"adapter_dtype": "bf16"}, {"batch_size": 2, "seq_len": 256}),
    Setting(
        "bf16 base, fp32 adapters, checkpointing",
        LLAMA | {"activation_checkpointing": True},
        {"batch_size": 2, "seq_len": 256},
    ),
    Setting(
        "bf16 base, fp32 adapters, bf16 autocast",
        LLAMA | {"precision": "bf16"},
        {"batch_size": 2, "seq_len": 256},
    ),
    Setting(
        "bf16 base, fp32 adapters, Adafactor",
        LLAMA | {"optimizer": "adafactor"},
        {"batch_size": 2, "seq_len": 256},
    ),
    Setting(
        "everything trains, in bf16", GPT2 | {"weights_dtype": "bf16"}, {"batch_size": 4, "seq_len": 256}
    ),
    Setting("checkpointing", GPT2 | {"activation_checkpointing": True}, {"batch_size": 4, "seq_len": 256}),
    Setting("Adafactor", GPT2 | {"optimizer": "adafactor"}, {"batch_size": 4, "seq_len": 256}),
    Setting("all but embeddings", GPT2 | {"train": "all,!*wte*,!*wpe*"}, {"batch_size": 4, "seq_len": 256}),
    Setting(
        "channels_last",
        {"workload": "huggingface:resnet-50", "channels_last": True},
        {"batch_size": 8, "seq_len": 1},
    ),
    Setting("tf32", {"precision": "tf32"}, {"model_size": "small", "batch_size": 4, "seq_len": 256}),
]
HEADINGS = [
    "setting",
    "trainer",
    "gradient",
    "peak, CPU, bytes",
    "ledger",
    "estimate",
    "allocated, GPU, MiB",
    "estimate, %",
    "reserved, GPU, MiB",
    "estimate, %",
]


def experiment(settings: dict[str, Any]) -> Record:
    """Run one here."""
    with TemporaryDirectory() as place:
        return measured(Path(place), **settings)


def on_cpu(setting: Setting, trainer: str) -> list[str]:
    """The gradient's verdict, the allocator's peak, and how far off the ledger and the estimate are."""
    family = setting.how.get("workload", "").removeprefix("huggingface:")
    small = SMALL[family] if family else {}
    settings = small | setting.how | {"trainer": trainer, "batch_size": 3, "seq_len": 16, "device": "cpu"}
    short = {"warmup_steps": 1, "measured_steps": 2, "passes": "clean,memory,ledger,gradient_check"}
    try:
        found, estimate = experiment(settings | short), experiment(settings | {"passes": "estimate"})
    except (DpprofError, PassFailed) as refusal:
        return [f"refused: {refusal.__cause__ or refusal}"[:120], "", "", ""]
    gradient = known(found.gradient_check)
    verdict = verdicts(found)[GRADIENT_CHECK].word
    errors = {
        name.removeprefix("relative_error_"): value
        for name, value in vars(gradient).items()
        if name.startswith("relative_error_") and value is not None
    }
    shown = ", ".join(f"{way} {error:.0e}" for way, error in errors.items())
    peak = known(known(found.memory).peak_allocated)
    others = [f"{known(one.ledger).peak - peak:+,}" for one in (found, estimate)]
    return [f"{verdict}: {shown}", f"{peak:,}", *others]


def on_gpu(folder: Path, case: Case) -> list[str]:
    """The peaks of the allocator, and how far off the estimates are."""
    real, found = on_stand_in(folder, case), estimated(case)
    if "error" in real or "error" in found:
        return [" ".join(str((real | found)["error"]).split())[-120:], "", "", ""]
    cells = []
    for name in ("allocated", "reserved"):
        cells += [f"{real[name] / 2**20:,.1f}", f"{100 * (found[name] / real[name] - 1):+.2f}"]
    return cells


def in_table(cell: str) -> str:
    """Shorten a refusal, whose reason is above the table."""
    return "refused" if cell.startswith(("refused: ", "PassFailed")) else cell


def main() -> None:
    """Print the page."""
    folder = Path(sys.argv[1]).resolve()
    chosen = [(setting, trainer) for setting in SETTINGS for trainer in DEFAULT_TRAINERS]
    cases: list[Case] = [
        (GPU, setting.how | setting.on_gpu | {"trainer": short_name(trainer)}) for setting, trainer in chosen
    ]
    path = folder / "as_people_train.jsonl"
    done = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    cells_of = {(name, trainer): cells for name, trainer, cells in done}
    missing = [
        (one, case) for one, case in zip(chosen, cases, strict=True) if (one[0].name, one[1]) not in cells_of
    ]
    with ThreadPoolExecutor(2) as pool, path.open("a") as out:
        of_gpu = pool.map(partial(on_gpu, folder), [case for _, case in missing])
        for ((setting, trainer), _), cells in zip(missing, of_gpu, strict=True):
            print(setting.name, trainer, file=sys.stderr)
            cells_of[setting.name, trainer] = [*on_cpu(setting, trainer), *cells]
            print(json.dumps([setting.name, trainer, cells_of[setting.name, trainer]]), file=out, flush=True)
    rows = [
        [one.name, short_name(trainer), *map(in_table, cells_of[one.name, trainer])]
        for one, trainer in chosen
    ]
    print("# What people train\n")
    print(
        "`python benchmarks/as_people_train.py FOLDER`: settings of fine-tuning with every trainer, "
        f"{versions_of([torch, opacus, transformers])}.\n"
    )
    print(
        "**CPU**: two layers, batch 3, sequence 16. Gradient: the relative error against a naive loop over "
        "samples, in float64, float32 and as the run computes. Peak: that of torch's allocator; ledger and "
        "estimate: their peaks less that, in bytes. The ledger does not see what an operator takes within "
        "itself; the estimate does. With checkpointing, neither sees the random generator's state that torch "
        "keeps for each layer, 5,056 bytes. TF32 needs a GPU. Opacus's trainers refuse images with channels "
        "last, for which Opacus's gradient is wrong.\n"
    )
    print(
        f"**GPU**: an {GPU} that was not there. `llama-1b` with batch 2, `gpt2` and `small` with batch 4, "
        "sequence 256, on [a stand-in for a GPU](phantom.md), whose allocator and dispatcher are torch's. "
        "What ResNet reserves beyond its estimate with `standard` are partial sums in cuDNN's workspaces, "
        "which the estimate names as a doubt.\n"
    )
    print(markdown_table(HEADINGS, rows))


if __name__ == "__main__":
    main()
