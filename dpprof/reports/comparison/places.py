"""Where a finding holds: the names of places, and how a sentence tells them."""

from dataclasses import dataclass

from dpprof.reports.comparison.cell import Cell
from dpprof.reports.comparison.comparison import Comparison
from dpprof.reports.comparison.models import short_count
from dpprof.vocabulary.formats import joined

_LISTED = 3


@dataclass(frozen=True)
class Places:
    """The places at which trainers could be set against each other.

    `is_every` says whether these are all the places of the comparison, `is_undisturbed` whether the others
    are those with disturbed runs, or some of them are. `ranges` names the models, batches and sequences of
    several places.
    """

    names: tuple[str, ...]
    is_every: bool = True
    is_undisturbed: bool = False
    ranges: str = ""

    def __str__(self) -> str:
        if len(self.names) == 1:
            return f"at {self.names[0]}"
        if self.is_every:
            return f"at all {len(self.names)} places ({self.ranges})"
        condition = " undisturbed" if self.is_undisturbed else ""
        return f"at all {len(self.names)} places where several of them finished{condition} ({self.ranges})"


def full_name(comparison: Comparison, cell: Cell) -> str:
    """A cell's place as no other of the comparison is called: `tiny, batch 4, sequence 256`."""
    return f"{comparison.model(cell).label}, {comparison.place_name(cell)}"


def model_in_words(comparison: Comparison, cell: Cell) -> str:
    """A cell's model with its size: `mini (1.05M parameters)`."""
    model = comparison.model(cell)
    if model.needs_count or not model.num_parameters:
        return model.label
    return f"{model.name} ({short_count(max(model.num_parameters))} parameters)"


def subject(comparison: Comparison, cells: list[Cell]) -> str:
    """For what a finding on some cells holds: `mini (1.05M parameters) on a CPU with 2 cores`."""
    models = dict.fromkeys(model_in_words(comparison, cell) for cell in cells)
    devices = dict.fromkeys(map(_device, cells))
    return f"{joined(list(models))} on {joined(list(devices))}"


def _device(cell: Cell) -> str:
    if cell.config.device == "cuda":
        return cell.environment.get("gpu", "a GPU")
    cores = cell.environment.get("cpu_cores")
    return f"a CPU with {cores} core{'' if cores == '1' else 's'}" if cores else "the CPU"


def places_of(comparison: Comparison, cells: list[Cell]) -> Places:
    """The places of some cells, one of each."""
    is_every = len(cells) == len(comparison.places)
    disturbed = any(comparison.is_disturbed_at(place[0]) for place in comparison.places)
    is_undisturbed = disturbed and not any(map(comparison.is_disturbed_at, cells))
    names = tuple(full_name(comparison, cell) for cell in cells)
    ranges = _ranges(comparison, cells) if len(cells) > 1 else ""
    return Places(names, is_every, is_undisturbed and not is_every, ranges)


def _ranges(comparison: Comparison, cells: list[Cell]) -> str:
    """`mini, batch 4 and 8, sequence 32 and 64`."""
    models = dict.fromkeys(comparison.model(cell).label for cell in cells)
    batches = sorted({cell.config.batch_size for cell in cells})
    lengths = sorted({cell.config.seq_len for cell in cells})
    told = [joined(list(models)), f"batch {joined([str(size) for size in batches])}"]
    return ", ".join([*told, f"sequence {joined([str(length) for length in lengths])}"])


def some_places(names: tuple[str, ...], total: int) -> str:
    """Some of so many places in a sentence, the first of them by name."""
    shown = list(names[:_LISTED])
    if len(names) > _LISTED:
        shown.append(f"{len(names) - _LISTED} more")
    return f"at {len(names)} of {total} places ({'; '.join(shown)})"


def size_of(cell: Cell) -> tuple[int, int]:
    """How large an experiment is, so that the largest can be told: by its model, then by its tokens."""
    return (cell.num_parameters or 0, cell.config.batch_size * cell.config.seq_len)
