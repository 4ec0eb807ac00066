"""Claims a campaign's folder by creating it, and locks it while something writes there."""

import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path

from dpprof.drive.campaign import Campaign
from dpprof.drive.run import replace_or_discard
from dpprof.errors import refuse
from dpprof.record.folder import RunFolder, SweepFolder
from dpprof.record.lock import locked


@contextmanager
def claimed(campaign: Campaign, stem: str, *, resume: bool = False) -> Iterator[None]:
    """Hold a campaign's folder: a new one, or with `resume` an earlier one.

    Names a campaign without a name by `stem` and time. Removes a new folder that is still empty at the end.
    Raises ConfigError if the name is taken or in use, or if `resume` finds no such campaign.
    """
    if resume:
        if not campaign.folder.path.is_dir():
            allowed = f"with resume=true the name of an earlier sweep in {campaign.drive.runs_dir}"
            raise refuse("sweep_name", campaign.name, allowed)
        with held([campaign.folder.path]):
            yield
        return
    path = _made(campaign, stem).absolute()
    try:
        with locked(path):
            yield
    finally:
        with suppress(OSError):
            path.rmdir()


@contextmanager
def held(folders: Iterable[Path | str]) -> Iterator[None]:
    """Hold campaign folders, given directly or by a run folder. Raises ConfigError if one is in use."""
    paths = {Path(folder).resolve() for folder in folders}
    with ExitStack() as stack:
        for path in sorted({path.parent if RunFolder(path).config.exists() else path for path in paths}):
            stack.enter_context(locked(path))
            replace_or_discard(SweepFolder(path))
        yield


def _made(campaign: Campaign, stem: str) -> Path:
    """Create the campaign's folder; one without a name is named after its folder."""
    if not campaign.name:
        path = new_folder(campaign.drive.runs_dir, stem)
        campaign.name = path.name
        return path
    path = campaign.folder.path
    try:
        path.mkdir()
        return path
    except FileExistsError:
        with suppress(OSError), locked(path):  # raises what is to be said if it is in use
            pass
        allowed = "a new name" + (", or resume=true to go on with it" if campaign.can_be_resumed else "")
    except OSError as error:
        allowed = f"a name that a folder can have ({error.strerror})"
    raise refuse("sweep_name", campaign.name, allowed)


def new_folder(runs_dir: Path | str, stem: str) -> Path:
    """Create a folder that is named by `stem` and the time."""
    since = time.strftime("%Y%m%d-%H%M%S")
    for number in count(1):
        path = Path(runs_dir) / (f"{stem}-{since}" + (f"-{number}" if number > 1 else ""))
        with suppress(FileExistsError):
            path.mkdir()
            return path
    raise AssertionError("count() has no end")
