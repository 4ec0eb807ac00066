"""Steps that others measured on their GPUs, phase by phase, beside what dpprof predicts of them.

A data file maps each measured figure to a prediction under `figures`:

- `phases`, a list or `all`, without those of `but`: their predicted seconds. `less` names a figure that is
  taken off the measured one.
- `samples_in`: samples a second in such phases.
- `memory`: a figure of the record's memory.
- `phase_peak`: the most bytes allocated in this phase.
- `phase_tensors`: the bytes of all tensors then, but for the categories of `but`.
- `category`: the most bytes that the ledger saw of it. Of a list, the largest counts, or the sum if `added`.
- `fits`: whether the step fits the GPU.

`trainers` restricts a prediction to some. `left_out` says of everything else why it is not compared.
"""

import hashlib
import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dpprof.config.estimating import EstimatingConfig
from dpprof.config.experiment import ExperimentConfig
from dpprof.config.flat import parse_experiment
from dpprof.config.named_trainers import load_named
from dpprof.record.figures.capacity import capacity_bytes, needed_bytes
from dpprof.record.figures.step import LogicalStep, TimeRange
from dpprof.record.folder import RunFolder
from dpprof.record.ledger import LedgerResult
from dpprof.record.record import Record
from dpprof.vocabulary.formats import markdown_table, number, signed
from dpprof.vocabulary.units import mib, ms

MEMORY_HELD = 0.02
TIME, THROUGHPUT, MEMORY, CATEGORY, FITS = "time", "throughput", "memory", "category", "fits"
_UNITS: dict[str, tuple[str, Callable[[float], float]]] = {
    TIME: ("ms", ms),
    THROUGHPUT: ("samples/s", float),
    MEMORY: ("MiB", mib),
    CATEGORY: ("MiB", mib),
    FITS: ("MiB", mib),
}


@dataclass(frozen=True)
class Row:
    """A measured figure beside the predicted one: in seconds, samples a second, or bytes.

    Rows of tables without phases have these tables' unit. Of a step that ran out of memory, `measured` is the
    GPU's memory.
    """

    cell: str
    trainer: str
    figure: str
    kind: str
    measured: float
    predicted: float
    least: float | None = None
    most: float | None = None

    @property
    def error(self) -> float | None:
        """Relative error of the prediction; None where the source ran out of memory."""
        return None if self.kind == FITS else self.predicted / self.measured - 1

    @property
    def is_held(self) -> bool:
        """True if the range holds the figure, memory is within 2 %, or the step is found not to fit."""
        if self.error is None:
            return self.predicted > self.measured
        if self.least is None or self.most is None:
            return abs(self.error) <= MEMORY_HELD
        return self.least <= self.measured <= self.most

    @property
    def width(self) -> float | None:
        """Most over least of the predicted range."""
        return self.most / self.least if self.most and self.least else None

    @property
    def words(self) -> list[str]:
        """Cells of this row in the table of all rows."""
        unit, one = _UNITS[self.kind]
        has_range = self.least is not None and self.most is not None
        over = "over " if self.kind == FITS else ""
        return [
            self.cell,
            self.trainer,
            self.figure,
            f"{over}{number(one(self.measured))} {unit}",
            number(one(self.predicted)),
            f"{number(one(self.least or 0))} to {number(one(self.most or 0))}" if has_range else "",
            "" if self.error is None else _percent(self.error),
            "yes" if self.is_held else "no",
        ]


@dataclass
class Steps:
    """A data file's table and its rows. `failed` has the settings that no estimate came of, and why."""

    table: dict[str, Any]
    rows: list[Row] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)


def read_steps(table: dict[str, Any], home: Path) -> Steps:
    """Estimate each cell of a table in a folder of `home`, and compare its figures."""
    found = Steps(table)
    for cell in table["cells"]:
        settings = table["settings"] | cell["settings"]
        words = json.dumps(settings, sort_keys=True)
        place = home / f"step_{hashlib.sha256(words.encode()).hexdigest()[:12]}"
        try:
            config, record = estimated(settings, place)
        except (AssertionError, subprocess.CalledProcessError) as error:
            found.failed.append(f"{cell['name']}, {_trainer(table, cell)}: {error}")
            continue
        found.rows += _compared(table, cell, config, record)
    return found


def estimated(settings: dict[str, Any], place: Path) -> tuple[ExperimentConfig, Record]:
    """Estimate an experiment on CUDA in a folder, unless this has it already; return it with its record."""
    load_named(settings["trainer"])
    config = parse_experiment(settings | {"device": "cuda", "savings": False}, EstimatingConfig)
    config = config.resolve(cuda_available=False)
    folder = RunFolder(place)
    record = folder.read_record()
    if record is None or record.ledger is None:
        folder.create(config)
        run([sys.executable, "-m", "dpprof.measure", str(place)], place.parent)
        record = folder.read_record()
    assert record is not None, f"no record, see {folder.log}"
    assert record.ledger is not None, f"no estimate, see {folder.log}"
    return config, record


def run(command: list[str], folder: Path) -> None:
    """Run a command in a folder, with its output on stderr. Raises CalledProcessError if it fails."""
    subprocess.run(command, cwd=folder, check=True, stdout=sys.stderr)


def steps_section(steps: Steps) -> Iterator[str]:
    """Yield a table's section in Markdown: a summary, all rows with the worst first, reasons, omissions."""
    table = steps.table
    yield f"## {table['title']}\n\n{table['source']} (license: {table['license']}). {table['about']}\n"
    yield _summary("figure", steps.rows, lambda row: row.figure)
    times = [row for row in steps.rows if row.kind in (TIME, THROUGHPUT)]
    if all("," in row.cell for row in times) and len({_model(row) for row in times}) > 1:
        yield "Times alone, by model:\n"
        yield _summary("model", times, _model)
    columns = ["cell", "trainer", "figure", "measured", "predicted", "range", "error", "held"]
    worst = sorted(steps.rows, key=lambda row: -abs(row.error or 0))
    yield markdown_table(columns, [row.words for row in worst], right=range(3, 7))
    yield from (f"{text}\n" for text in table["why"])
    left_out = [f"- {name}: {why}" for name, why in table["left_out"].items()]
    yield "\n".join(["Left out:\n", *left_out, *(f"- {text}" for text in steps.failed)]) + "\n"


def overview(sources: Iterable[tuple[dict[str, Any], list[Row]]]) -> str:
    """Return a table over all sources, one row each; samples a second count as times.

    Categories have a column of their own: the sizes of weights and gradients are easy, and would drown peaks.
    """
    columns = ["source", "GPU", "rows", "memory: median error", "within 2 %", "categories within 2 %"]
    columns += ["times: median error", "held", "median width"]
    lines = []
    for table, rows in sources:
        memory = [row for row in rows if row.kind == MEMORY]
        categories = [row for row in rows if row.kind == CATEGORY]
        times = [row for row in rows if row.kind in (TIME, THROUGHPUT)]
        lines.append([table["title"], table.get("gpu", ""), str(len(rows)), _median(memory), _share(memory)])
        lines[-1] += [_held(categories), _median(times), _held(times), _width(times)]
    return markdown_table(columns, lines, right=2)


def _compared(
    table: dict[str, Any], cell: dict[str, Any], config: ExperimentConfig, record: Record
) -> Iterator[Row]:
    assert record.ledger is not None, "it was estimated"
    trainer = _trainer(table, cell)
    for figure, value in cell["figures"].items():
        how = table["figures"].get(figure)
        if how is None:
            assert figure in table["left_out"], f"{figure}: neither compared nor left out"
        elif trainer in how.get("trainers", [trainer]):
            measured = value - cell["figures"][how["less"]] if "less" in how else value
            kind, predicted, most_least = _predicted(how, config, record)
            if kind == FITS:
                measured = capacity_bytes(config)
            yield Row(cell["name"], trainer, figure, kind, measured, predicted, *most_least)


def _predicted(
    how: dict[str, Any], config: ExperimentConfig, record: Record
) -> tuple[str, float, tuple[float, float] | tuple[()]]:
    """Return the kind of a figure, its prediction, and the least and most of a time."""
    ledger = record.ledger
    assert ledger is not None, "it was estimated"
    if "phases" in how:
        middle, least, most = _seconds(how["phases"], how, config, ledger)
        return TIME, middle, (least, most)
    if "samples_in" in how:
        seconds, size = _seconds(how["samples_in"], how, config, ledger), config.batch_size
        return THROUGHPUT, size / seconds.seconds, (size / seconds.most, size / seconds.least)
    if "memory" in how:
        return MEMORY, getattr(record.memory, how["memory"]), ()
    if "phase_peak" in how:
        peak = ledger.phase_peak[how["phase_peak"]].num_bytes
        return MEMORY, peak + sum(ledger.from_allocator.values()), ()
    if "phase_tensors" in how:
        by_category = ledger.phase_peak[how["phase_tensors"]].by_category
        kept = {name: size for name, size in by_category.items() if name not in how.get("but", [])}
        return MEMORY, sum(kept.values()), ()
    if "fits" in how:
        return FITS, needed_bytes(config, ledger), ()
    names = [how["category"]] if isinstance(how["category"], str) else how["category"]
    join = sum if how.get("added") else max
    return CATEGORY, join(_most_of(name, ledger) for name in names), ()


def _seconds(
    phases: list[str] | str, how: dict[str, Any], config: ExperimentConfig, ledger: LedgerResult
) -> TimeRange:
    step = LogicalStep.of(config, ledger)
    chosen = step.by_phase if phases == "all" else phases
    kept = {name: step.phases[name] for name in chosen if name not in how.get("but", [])}
    time = LogicalStep(kept).time
    assert time is not None, "the target has times"
    return time


def _most_of(category: str, ledger: LedgerResult) -> int:
    """Return the most bytes of a category after the step and at the phases' peaks."""
    moments = [ledger.after_step, *(peak.by_category for peak in ledger.phase_peak.values())]
    return max(moment.get(category, 0) for moment in moments)


def _trainer(table: dict[str, Any], cell: dict[str, Any]) -> str:
    name: str = cell.get("trainer") or (table["settings"] | cell["settings"])["trainer"]
    return name


def _model(row: Row) -> str:
    """Return the part of a cell's name that its cells of other sizes share."""
    return row.cell.partition(",")[0]


def _summary(heading: str, rows: list[Row], key: Callable[[Row], str]) -> str:
    """Return a table of errors, one row for each key."""
    by_key: dict[str, list[Row]] = {}
    for row in rows:
        by_key.setdefault(key(row), []).append(row)
    lines = [
        [name, str(len(some)), _median(some), _worst(some), _held(some), _width(some)]
        for name, some in by_key.items()
    ]
    return markdown_table([heading, "rows", "median error", "worst", "held", "median width"], lines, right=1)


def _errors(rows: list[Row]) -> list[float]:
    return [row.error for row in rows if row.error is not None]


def _median(rows: list[Row]) -> str:
    sizes = [abs(_in_percent(error)) for error in _errors(rows)]
    return f"{number(statistics.median(sizes))} %" if sizes else ""


def _worst(rows: list[Row]) -> str:
    return _percent(max(errors, key=abs)) if (errors := _errors(rows)) else ""


def _percent(error: float) -> str:
    return f"{signed(_in_percent(error))} %"


def _in_percent(error: float) -> float:
    return round(100 * error, 4)


def _held(rows: list[Row]) -> str:
    return f"{sum(row.is_held for row in rows)} of {len(rows)}" if rows else ""


def _share(rows: list[Row]) -> str:
    return f"{100 * sum(row.is_held for row in rows) / len(rows):.0f} %" if rows else ""


def _width(rows: list[Row]) -> str:
    widths = [row.width for row in rows if row.width is not None]
    return number(statistics.median(widths)) if widths else ""
