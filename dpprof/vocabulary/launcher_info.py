"""Description of a launcher, known without importing it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class LauncherInfo:
    """Description of a launcher, known without importing it.

    `help` follows its name in `--help`. `target` is its class, `module:ClassName`, which is called with an
    instance of `options`, a frozen dataclass of settings (`settings`), if it has one. `package`, if needed,
    comes with dpprof's `extra`.
    """

    name: str
    help: str
    target: str
    options: type | None = None
    package: str = ""
    extra: str = ""
