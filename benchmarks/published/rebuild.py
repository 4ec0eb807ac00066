"""Figures that papers published of their GPUs, rebuilt without these.

    python benchmarks/published/rebuild.py FOLDER > docs/results/published.md

Each `*.json` beside this file has one published table: its source, its cells as printed, and the settings
that its source names. Memory cells are estimated; largest batches are searched for by `dpprof fit`. FOLDER
keeps the runs, and what it has already is not run again. Takes an hour on 2 cores.
"""

import importlib
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from dpprof.config.estimating import EstimatingConfig
from dpprof.config.flat import parse_experiment
from dpprof.record.figures.capacity import doubt_bytes
from dpprof.record.folder import RunFolder
from dpprof.vocabulary.formats import markdown_table
from dpprof.vocabulary.units import GIB, MIB

HERE = Path(__file__).resolve().parent
UNITS = {"MiB": MIB, "GiB": GIB, "GB": 1e9}
ORDER = [
    "mixed_ghost_clipping",
    "mixed_ghost_clipping_batch",
    "book_keeping_batch",
    "fork_flash_attention",
    "correlated_noise",
]


def main() -> None:
    home = Path(sys.argv[1]).resolve()
    home.mkdir(parents=True, exist_ok=True)
    places = [str(HERE), str(HERE.parent), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, places))
    print("# Published figures, rebuilt without the hardware\n")
    print(f"`python benchmarks/published/rebuild.py`, torch {torch.__version__}. Settings come from the")
    print("sources' texts and code; nothing is fitted. `error` is dpprof's figure over the published one.\n")
    for name in ORDER:
        table = json.loads((HERE / f"{name}.json").read_text(encoding="utf-8"))
        for line in rebuilt(name, table, home):
            print(line, flush=True)


def rebuilt(name: str, table: dict[str, Any], home: Path) -> Iterator[str]:
    yield f"## {table['title']}\n\n{table['source']}. {table['about']}\n"
    rows, errors = [], []
    for number, cell in enumerate(table["cells"]):
        found, note = figure(table, cell, home / f"{name}_{number}")
        published = cell["published"]
        if published is None:
            is_right = found > table["limit"]
            rows.append([cell["name"], "out of memory", shown(found), "right" if is_right else "wrong", note])
            continue
        errors.append(100 * (found / published - 1))
        rows.append([cell["name"], shown(published), shown(found), f"{errors[-1]:+.1f} %", note])
    columns = ["", f"published {table['unit']}", "dpprof", "error", "of it in doubt"]
    with_notes = any(row[-1] for row in rows)
    kept = [row if with_notes else row[:-1] for row in rows]
    yield markdown_table(columns if with_notes else columns[:-1], kept, right=1)
    sizes = [abs(error) for error in errors]
    yield f"Median error {statistics.median(sizes):.1f} %, worst {max(sizes):.1f} %.\n"
    yield from (f"{text}\n" for text in table["why"])


def figure(table: dict[str, Any], cell: dict[str, Any], place: Path) -> tuple[float, str]:
    """Return dpprof's figure in the table's unit, and a note."""
    settings = table["settings"] | cell["settings"]
    if "history" in settings:
        return settings["history"] * 4 * parameters_of(settings["model"]) / UNITS[table["unit"]], ""
    if table["unit"] == "samples":
        return largest(settings, place), ""
    config = parse_experiment(settings | {"device": "cuda", "savings": False}, EstimatingConfig)
    folder = RunFolder(place)
    if not folder.record.exists():
        folder.create(config.resolve(cuda_available=False))
        run([sys.executable, "-m", "dpprof.measure", str(place)], place.parent)
    record = folder.read_record()
    assert record is not None, folder.log
    assert record.ledger is not None, "it was estimated"
    if not table.get("with_doubt"):
        assert record.memory.peak_allocated is not None, "it was estimated for CUDA"
        return record.memory.peak_allocated / UNITS[table["unit"]], ""
    doubt = doubt_bytes(record.ledger) or 0
    unit = UNITS[table["unit"]]
    return (record.ledger.peak + doubt) / unit, f"{doubt / unit:.2f}"


def largest(settings: dict[str, Any], place: Path) -> int:
    """Return the largest batch that fits, without headroom."""
    options = {
        "headroom": "0%",
        "trainers": settings["trainer"],
        "sweep_name": place.name,
        "resume": str((place.parent / "runs" / place.name).exists()).lower(),
        **{name: value for name, value in settings.items() if name not in ("trainer", "seq_len")},
    }
    if "seq_len" in settings:
        options["seq_lens"] = settings["seq_len"]
    arguments = [
        word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))
    ]
    run([sys.executable, "-m", "dpprof", "fit", *arguments], place.parent)
    (row,) = json.loads((place.parent / "runs" / place.name / "fit.json").read_text(encoding="utf-8"))["rows"]
    found: int = row["largest_batch_size"]
    return found


def parameters_of(name: str) -> int:
    """Return the parameters of GPT-2 with a head of its own, counted without memory."""
    transformers: Any = importlib.import_module("transformers")
    assert name == "gpt2-xl"
    config = transformers.GPT2Config(n_embd=1600, n_layer=48, n_head=25, tie_word_embeddings=False)
    with torch.device("meta"):
        return sum(each.numel() for each in transformers.GPT2LMHeadModel(config).parameters())


def run(command: list[str], folder: Path) -> None:
    subprocess.run(command, cwd=folder, check=True, stdout=sys.stderr)


def shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or isinstance(value, int) else f"{value:.2f}"


if __name__ == "__main__":
    main()
