"""Names for the places where a finding holds."""

from collections.abc import Sequence

from dpprof.findings.comparison.cell import Cell
from dpprof.findings.comparison.comparison import Comparison
from dpprof.findings.comparison.models import short_count
from dpprof.vocabulary.formats import joined


def full_name(comparison: Comparison, cell: Cell) -> str:
    """Name a cell's place with its model: `tiny, batch 4, sequence 256`."""
    return f"{comparison.model(cell).label}, {comparison.place_name(cell)}"


def model_in_words(comparison: Comparison, cell: Cell) -> str:
    """Name a cell's model with its size: `mini (1.05M parameters)`."""
    model = comparison.model(cell)
    if model.needs_count or not model.num_parameters:
        return model.label
    return f"{model.name} ({short_count(max(model.num_parameters))} parameters)"


def subject(comparison: Comparison, cells: list[Cell]) -> str:
    """Name models and devices of some cells: `mini (1.05M parameters) on a CPU with 2 cores`."""
    models = dict.fromkeys(model_in_words(comparison, cell) for cell in cells)
    devices = dict.fromkeys(map(_device, cells))
    return f"{joined(list(models))} on {joined(list(devices))}"


def _device(cell: Cell) -> str:
    if cell.config.device == "cuda":
        return cell.environment.get("gpu", "a GPU")
    cores = cell.environment.get("cpu_cores")
    return f"a CPU with {cores} core{'' if cores == '1' else 's'}" if cores else "the CPU"


def at_places(comparison: Comparison, cells: list[Cell]) -> str:
    """Name the places of some cells, one of each: a single one by name, several by what they span."""
    if len(cells) == 1:
        return f"at {full_name(comparison, cells[0])}"
    condition = ""
    if len(cells) < len(comparison.places):
        condition = " where several of them finished"
        disturbed = any(comparison.is_disturbed_at(place[0]) for place in comparison.places)
        if disturbed and not any(map(comparison.is_disturbed_at, cells)):
            condition += " undisturbed"
    all_of_them = "both" if len(cells) == 2 else f"all {len(cells)}"
    return f"at {all_of_them} places{condition} ({_ranges(comparison, cells)})"


def _ranges(comparison: Comparison, cells: list[Cell]) -> str:
    """Name what cells span: `mini, batch 4 and 8, sequence 32 and 64`."""
    models = dict.fromkeys(comparison.model(cell).label for cell in cells)
    batches = sorted({cell.config.batch_size for cell in cells})
    lengths = sorted({cell.config.seq_len for cell in cells})
    batch, sequence = (joined(list(map(str, sizes))) for sizes in (batches, lengths))
    return f"{joined(list(models))}, batch {batch}, sequence {sequence}"


def first_names(names: Sequence[str], most: int) -> str:
    """List the first few names of several words, and how many more there are."""
    return "; ".join([*names[:most], *([f"{len(names) - most} more"] if len(names) > most else [])])


def size_of(cell: Cell) -> tuple[int, int]:
    """Return a sort key: the size of the model, then the tokens of a step."""
    return (cell.num_parameters or 0, cell.config.batch_size * cell.config.seq_len)
