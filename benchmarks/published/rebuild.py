"""Figures that others published of their GPUs, rebuilt without these.

    python benchmarks/published/rebuild.py FOLDER [TABLE ...] > docs/results/published.md

Each `*.json` beside this file has one published table: its source, its cells as printed, and the settings
that its source names. Memory cells are estimated; largest batches are searched for by `dpprof fit`;
`steps.py` compares steps phase by phase. FOLDER keeps the runs, and what it has already is not run again.
TABLE names those to rebuild, as `decoders`; all take two hours on 2 cores.
"""

import importlib
import json
import math
import os
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from steps import FITS, MEMORY, Row, estimated, overview, read_steps, run, steps_section

from dpprof.record.figures.capacity import doubt_bytes
from dpprof.vocabulary.formats import markdown_table
from dpprof.vocabulary.units import GIB, MIB

HERE = Path(__file__).resolve().parent
UNITS = {"MiB": MIB, "GiB": GIB, "GB": 1e9}
STEPS = ["opacus_fusion", "decoders", "opake", "litgpt"]
OLDER = [
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
    chosen = sys.argv[2:] or [*STEPS, *OLDER]
    unknown = set(chosen) - {*STEPS, *OLDER}
    if unknown:
        sys.exit(f"no such table: {', '.join(sorted(unknown))}")
    sources: list[tuple[dict[str, Any], list[Row]]] = []
    texts: list[str] = []
    for name in (name for name in [*STEPS, *OLDER] if name in chosen):
        table = json.loads((HERE / f"{name}.json").read_text(encoding="utf-8"))
        if name in STEPS:
            steps = read_steps(table, home)
            rows, lines = steps.rows, steps_section(steps)
        else:
            rows, notes = rebuilt(name, table, home)
            lines = section(table, rows, notes)
        sources.append((table, rows))
        texts += lines
    print("# Published figures, rebuilt without the hardware\n")
    command = " ".join(["python benchmarks/published/rebuild.py FOLDER", *sys.argv[2:]])
    print(f"`{command}`, torch {torch.__version__}. Settings come from the")
    print("sources' texts and code. No number in dpprof comes from a step of these sources. Its times are")
    print("those of single operators, and of another host. Which effects to model was chosen with some")
    print("of these rows in view. `error` is dpprof's figure over the published one.")
    print("A time is held if its predicted range holds the published one, memory if it is within 2 %.")
    print("Below, largest batches count as memory, and samples per second as times.\n")
    print(overview(sources), *texts, sep="\n")


def rebuilt(name: str, table: dict[str, Any], home: Path) -> tuple[list[Row], list[str]]:
    """Return a table's cells in its own unit, and a note on each."""
    rows, notes = [], []
    for number, cell in enumerate(table["cells"]):
        found, note = figure(table, cell, home / f"{name}_{number}")
        published = cell["published"]
        kind, measured = (FITS, table["limit"]) if published is None else (MEMORY, published)
        rows.append(Row(cell["name"], "", table["unit"], kind, measured, found))
        notes.append(note)
    return rows, notes


def section(table: dict[str, Any], rows: list[Row], notes: list[str]) -> Iterator[str]:
    """Yield a section in Markdown, the worst rows first."""
    yield f"## {table['title']}\n\n{table['source']}. {table['about']}\n"
    lines, errors = [], []
    for row, note in sorted(zip(rows, notes, strict=True), key=lambda pair: -_badness(pair[0])):
        if row.error is None:
            verdict = "right" if row.is_held else "wrong"
            lines.append([row.cell, "out of memory", shown(row.predicted), verdict, note])
            continue
        errors.append(100 * row.error)
        lines.append([row.cell, shown(row.measured), shown(row.predicted), f"{errors[-1]:+.1f} %", note])
    columns = ["", f"published {table['unit']}", "dpprof", "error", "of it in doubt"]
    kept = [line if any(notes) else line[:-1] for line in lines]
    yield markdown_table(columns if any(notes) else columns[:-1], kept, right=1)
    sizes = [abs(error) for error in errors]
    yield f"Median error {statistics.median(sizes):.1f} %, worst {max(sizes):.1f} %.\n"
    yield from (f"{text}\n" for text in table["why"])


def _badness(row: Row) -> float:
    """Return how wrong a row is; that a step runs out of memory is right or wrong."""
    if row.error is None:
        return 0.0 if row.is_held else math.inf
    return abs(row.error)


def figure(table: dict[str, Any], cell: dict[str, Any], place: Path) -> tuple[float, str]:
    """Return dpprof's figure in the table's unit, and a note."""
    settings = table["settings"] | cell["settings"]
    if "history" in settings:
        return settings["history"] * 4 * parameters_of(settings["model"]) / UNITS[table["unit"]], ""
    if table["unit"] == "samples":
        return largest(settings, place), ""
    _, record = estimated(settings, place)
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
        "seq_lens": settings.get("seq_len", 1),
        **{name: value for name, value in settings.items() if name not in ("trainer", "seq_len")},
    }
    arguments = [
        word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))
    ]
    answer = place.parent / "runs" / place.name / "fit.json"
    if not answer.exists():
        run([sys.executable, "-m", "dpprof", "fit", *arguments], place.parent)
    (row,) = json.loads(answer.read_text(encoding="utf-8"))
    found: int = row["largest_batch_size"]
    return found


def parameters_of(name: str) -> int:
    """Return the parameters of GPT-2 with a head of its own, counted without memory."""
    transformers: Any = importlib.import_module("transformers")
    assert name == "gpt2-xl"
    config = transformers.GPT2Config(n_embd=1600, n_layer=48, n_head=25, tie_word_embeddings=False)
    with torch.device("meta"):
        return sum(each.numel() for each in transformers.GPT2LMHeadModel(config).parameters())


def shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or isinstance(value, int) else f"{value:.2f}"


if __name__ == "__main__":
    main()
