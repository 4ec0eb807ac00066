"""The cells of a comparison in the terminal: a block for each model, place after place, with bars."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dpprof.cli.console import VERDICT_COLORS
from dpprof.cli.text_bars import bar
from dpprof.config.flat import trainers_options
from dpprof.figures.names import IQR, PEAK, SAMPLES, STEP
from dpprof.reports.comparison.data import ComparisonData
from dpprof.reports.comparison.marks import WORDS
from dpprof.reports.comparison.rows import ModelRows, PlaceRows, Row
from dpprof.vocabulary.formats import fixed, number
from dpprof.vocabulary.trainers import trainer_info

DISTURBED = "disturbed"
FAILURES = {"oom": "out of memory", "timeout": "timed out", "error": "failed"}
_INDENT = 2
_GAP = 2
_LONGEST_BAR, _SHORTEST_BAR = 24, 4
_LONGEST_NAME = 24


@dataclass(frozen=True)
class _Column:
    """A column of texts, one for each row. Columns `of_bars` share what room the others leave."""

    header: str
    texts: list[Text] = field(default_factory=list)
    is_left: bool = False
    of_bars: Callable[[Row], tuple[float | None, float]] | None = None

    @property
    def width(self) -> int:
        return max([cell_len(self.header), *(cell_len(text.plain) for text in self.texts)])


def cell_tables(data: ComparisonData, console: Console) -> Iterator[RenderableType]:
    """A block for each model: its name, then its places with a row for each trainer."""
    for found in data.models:
        yield _block(data, found, console)


def _block(data: ComparisonData, found: ModelRows, console: Console) -> RenderableType:
    precisions = {place.settings["precision"] for place in found.places}
    title = f"{found.model.heading}, {precisions.pop()}" if len(precisions) == 1 else found.model.heading
    columns = _columns(data, found, "+-" if console.options.ascii_only else "±")
    room = console.width - _INDENT - _GAP * (len(columns) - 1)
    if _bar_width(columns, room) < 2 * _SHORTEST_BAR:
        columns = [column for column in columns if column.header != "samples/s"]
        room = console.width - _INDENT - _GAP * (len(columns) - 1)
    length = _bar_width(columns, room)
    if length < _SHORTEST_BAR:
        columns = [column for column in columns if column.of_bars is None]
    parts: list[RenderableType] = [Text(title, "bold"), _grid(columns, length, [_header(columns)])]
    first = 0
    for place in found.places:
        parts.append(Padding(Text(place.name, "dim"), (0, 0, 0, _INDENT)))
        numbered = range(first, first + len(place.rows))
        shown = [[_shown(c, i, place.rows[i - first], length, console) for c in columns] for i in numbered]
        parts.append(_grid(columns, length, shown))
        first += len(place.rows)
    return Group(*parts)


def _bar_width(columns: list[_Column], room: int) -> int:
    """What each column of bars gets of the room."""
    taken = sum(column.width for column in columns if column.of_bars is None)
    num_bars = sum(column.of_bars is not None for column in columns)
    return min((room - taken) // num_bars, _LONGEST_BAR) if num_bars else _LONGEST_BAR


def _grid(columns: list[_Column], length: int, rows: list[list[Text]]) -> RenderableType:
    """Rows under one another; the same columns are as wide in every grid."""
    grid = Table.grid(padding=(0, _GAP, 0, 0), pad_edge=False)
    for column in columns:
        is_left = column.is_left or column.of_bars is not None
        width = column.width if column.of_bars is None else length
        grid.add_column(justify="left" if is_left else "right", width=width, overflow="fold")
    for row in rows:
        grid.add_row(*row)
    return Padding(grid, (0, 0, 0, _INDENT), expand=False)


def _header(columns: list[_Column]) -> list[Text]:
    return [Text(column.header, "bold dim") for column in columns]


def _shown(column: _Column, index: int, row: Row, length: int, console: Console) -> Text:
    if column.of_bars is None:
        return column.texts[index]
    value, longest = column.of_bars(row)
    drawn = bar(value, longest, length, ascii_only=console.options.ascii_only)
    return Text(drawn, trainer_info(row.cell.trainer).color)


def _columns(data: ComparisonData, found: ModelRows, plus_minus: str) -> list[_Column]:
    """Those that have something to show for this model."""
    rows = [row for place in found.places for row in place.rows]
    own_options = set(data.comparison.varying)
    columns = [_Column("", [_trainer(row, own_options) for row in rows], is_left=True)]
    texts = [_step(row, plus_minus) for row in rows]
    if any(text.plain for text in texts):
        columns.append(_Column("step ms", texts))
        columns += _judged(found, "step_time", STEP)
    columns.append(_Column("peak MiB", [Text(number(row.cell.peak_mib)) for row in rows]))
    columns += _judged(found, "peak_memory", PEAK)
    more = (
        ("on the device", [Text(row.held_against, _fit_style(row.held_against)) for row in rows], True),
        ("samples/s", [Text(number(row.cell.figures.get(SAMPLES))) for row in rows], False),
        ("gradient", [_gradient(row) for row in rows], True),
    )
    for header, column, is_left in more:
        if any(text.plain for text in column):
            columns.append(_Column(header, column, is_left))
    return columns


def _judged(found: ModelRows, measure: str, metric: str) -> Iterator[_Column]:
    """How a figure compares: its ratio to standard training, its bar, and a word for best and worst."""
    rows = [row for place in found.places for row in place.rows]
    ratios = [Text(fixed(row.bars[measure].ratio, 2)) for row in rows]
    if any(text.plain for text in ratios):
        yield _Column("x", ratios)
    if any(row.bars[measure].total for row in rows):
        yield _Column("", of_bars=partial(_length, measure, found.scales[measure]))
    words = [text for place in found.places for text in _words(place, measure, metric)]
    if any(text.plain for text in words):
        yield _Column("", words, is_left=True)


def _length(measure: str, scale: float, row: Row) -> tuple[float | None, float]:
    return row.bars[measure].total, scale


def _words(place: PlaceRows, measure: str, metric: str) -> Iterator[Text]:
    for row in place.rows:
        word = row.marks[metric]
        if measure == "step_time" and row.cell.is_disturbed:
            yield Text(DISTURBED, "yellow")
        else:
            yield Text(word, "green" if word == WORDS[metric][0] else "magenta")


def _trainer(row: Row, varying: set[str]) -> Text:
    """The trainer's short name, with those of its own options that vary."""
    info, cell = trainer_info(row.cell.trainer), row.cell
    own = [f"{n}={cell.settings[n]}" for n in sorted(trainers_options(cell.config) & varying)]
    text = Text(" ".join([info.short_name, *own]))
    text.truncate(_LONGEST_NAME, overflow="ellipsis")
    return text


def _step(row: Row, plus_minus: str) -> Text:
    """The step time with half its interquartile range, an estimate's lower bound, or how the cell failed."""
    cell, figures, time = row.cell, row.cell.figures, row.bars["step_time"]
    if time.failure is not None:
        return Text(FAILURES.get(time.failure, time.failure), "red")
    if time.floor is not None:
        return Text(f">= {number(time.floor)}")
    spread = f" {plus_minus} {number(figures[IQR] / 2)}" if IQR in figures else ""
    return Text(number(figures.get(STEP)) + spread, "yellow" if cell.is_disturbed else "")


def _fit_style(text: str) -> str:
    return "red" if "does not fit" in text else "yellow" if "may or may not" in text else "green"


def _gradient(row: Row) -> Text:
    verdict = row.cell.gradient_check
    return Text(verdict or "", VERDICT_COLORS.get(verdict or "", ""))
